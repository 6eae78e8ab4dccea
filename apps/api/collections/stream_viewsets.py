"""Online collection: task rows in, finished rollouts out, in one NDJSON response."""

import hashlib
import threading
from functools import partial
from http import HTTPStatus
from typing import Any
from weakref import WeakSet

import orjson
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as ModelValidationError
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from apps.accounts.api_keys import still_may
from apps.accounts.permissions import Permission
from apps.agents.models import Agent
from apps.api.collections.steering_actions import LimitsSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.file_answers import NdjsonRenderer
from apps.api.framework.idempotency import PLAN_KEY, read_key
from apps.api.framework.problems import Problem
from apps.api.framework.spec_serializers import spec_serializer
from apps.environments.models import Environment
from apps.gym.exporters.captured_rows import TOKEN_CHOICES
from apps.gym.exporters.protocol import Options
from apps.gym.redaction.shortening import cut
from apps.policies.model_registration import find_addressed
from apps.policies.models import PolicyModel, Provider, Wire
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import find_planned, plan_collection
from apps.rollouts.streams.rollout_stream import RolloutStream
from apps.tasks.models import DatasetVersion, Task
from apps.tasks.request_rows import RowsRefused, accept_rows

NDJSON = "application/x-ndjson"
PRIORITY = -100
PROVIDERS = [(one.value, one.label) for one in (Provider.VLLM, Provider.COMPATIBLE)]
WIRES = [(one.value, one.label) for one in (Wire.RESPONSES, Wire.CHAT)]
RETRY_SECONDS = 5
SHOWN = 10
"""Maximum number of unknown ids in an error message."""


class EndpointSerializer(DeclaredFields, serializers.Serializer[Any]):
    """A model server without a key. It is registered as a policy model on first use."""

    base_url = serializers.CharField(max_length=500, help_text="With /v1.")
    model_name = serializers.CharField(max_length=200, help_text="Model name at the endpoint.")
    provider = serializers.ChoiceField(choices=PROVIDERS, default=Provider.VLLM.value)
    wire = serializers.ChoiceField(choices=WIRES, default=Wire.CHAT)
    capture_tokens = serializers.BooleanField(default=True, help_text="Capture token IDs and logprobs of every reply.")
    version = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        help_text="Version of the weights, recorded with every rollout.",
    )


@spec_serializer(Options, *TOKEN_CHOICES)
@spec_serializer(Plan, "sampling", "repeats", "seed")
class StreamRequestSerializer(LimitsSerializer):
    rows = serializers.ListField(
        child=serializers.DictField(), required=False, allow_empty=False, help_text="Task rows, as in a task file."
    )
    environment = serializers.SlugRelatedField(
        slug_field="slug", queryset=Environment.objects.all(), required=False, help_text="Environment of the rows."
    )
    task_ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        required=False,
        allow_empty=False,
        help_text="Instead of rows: ids of tasks of one dataset version.",
    )
    policy_model = serializers.SlugRelatedField(
        slug_field="slug",
        queryset=PolicyModel.objects.all(),
        required=False,
        help_text="Slug of a registered policy model.",
    )
    endpoint = EndpointSerializer(required=False, help_text="Endpoint to use instead of policy_model.")
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all(), required=False)
    group = serializers.BooleanField(
        default=False, help_text="Send all repeats of a task together, when the last one has finished."
    )
    keep = serializers.BooleanField(
        default=False, help_text="The collection continues after the stream ends or disconnects."
    )
    seconds = serializers.IntegerField(
        min_value=1, default=3600, help_text="Maximum duration of the stream in seconds."
    )
    priority = serializers.IntegerField(
        min_value=-1000, max_value=1000, default=PRIORITY, help_text="Smaller numbers run first."
    )

    max_seconds = None  # replaced by `seconds`

    def validate_seconds(self, seconds: int) -> int:
        if seconds > settings.STREAM_SECONDS:
            raise serializers.ValidationError(f"At most {settings.STREAM_SECONDS:,} (GYMWEB_STREAM_SECONDS).")
        return seconds

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        errors = {}
        if ("rows" in attrs) == ("task_ids" in attrs):
            errors["rows"] = "Give either rows or task_ids."
        if ("environment" in attrs) != ("rows" in attrs):
            errors["environment"] = "Give environment with rows, and only with rows."
        if ("policy_model" in attrs) == ("endpoint" in attrs):
            errors["policy_model"] = "Give either policy_model or endpoint."
        number = len(attrs.get("rows") or attrs.get("task_ids") or ()) * attrs["repeats"]
        if number > settings.STREAM_ROLLOUTS:
            errors["repeats"] = (
                f"The request has {number:,} rollouts; a stream has at most {settings.STREAM_ROLLOUTS:,} "
                "(GYMWEB_STREAM_ROLLOUTS)."
            )
        if "agent" not in attrs:
            attrs["agent"] = Agent.objects.filter(slug="default").first()
            if attrs["agent"] is None:
                errors["agent"] = "No agent named default exists. Give an agent."
        if errors:
            raise serializers.ValidationError(errors)
        return attrs


class TooManyStreams(Problem):
    wait = RETRY_SECONDS

    def __init__(self, detail: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", detail)


class StreamResponse(StreamingHttpResponse):
    """Counts as open until closed. Django also closes it when the client disconnects."""

    open: "WeakSet[StreamResponse]" = WeakSet()
    counting = threading.Lock()

    def __init__(self, stream: RolloutStream) -> None:
        super().__init__(stream.lines(), content_type=NDJSON)
        self._stream = stream
        self["Cache-Control"] = "no-store"
        # A proxy that buffers the response would delay finished rollouts.
        self["X-Accel-Buffering"] = "no"
        with self.counting:
            self.open.add(self)

    def close(self) -> None:
        with self.counting:
            self.open.discard(self)
        try:
            self._stream.leave()
        finally:
            super().close()

    @classmethod
    def is_full(cls) -> bool:
        with cls.counting:
            return len(cls.open) >= settings.STREAMS


FIGURES = {"group_size": 2, "group_mean": 0.5, "zero_variance": False, "advantages": {"41": {"advantage": 0.9998}}}
LINES = [
    OpenApiExample("the first line", {"type": "collection", "collection": 7, "state": "running", "total": 2}),
    OpenApiExample(
        "a rollout",
        {
            "type": "rollout",
            "rollout": 41,
            "task": 12,
            "task_index": 0,
            "repeat": 1,
            "status": "completed",
            "reward": 1.0,
            "components": {"correct": 1.0},
            "error_kind": "",
            "model_version": "step-120",
            "items": [],
            "segments": [
                {
                    "calls": [1],
                    "input_ids": [1, 2],
                    "mask": [0, 1],
                    "logprobs": [0.0, -0.1],
                    "sampled": [{"call": 1, "version": "step-120", "start": 1, "end": 2, "temperature": 1.0}],
                    "weight": 1.0,
                }
            ],
            "logprob_mode": "raw_logprobs",
        },
    ),
    OpenApiExample("a group", {"type": "group", "task": 12, "is_whole": True, "figures": FIGURES, "rollouts": []}),
    OpenApiExample("the last line", {"type": "end", "reason": "completed", "collection": 7, "completed": 2}),
]


class StreamViewSet(TableViewSet):
    queryset = Collection.objects.none()
    renderer_classes = [JSONRenderer, NdjsonRenderer]
    permissions = {"stream": Permission.COLLECT}
    own_idempotency = frozenset({"stream"})

    @extend_schema(
        request=StreamRequestSerializer,
        responses={(200, NDJSON): OpenApiTypes.OBJECT},
        examples=[OpenApiExample(one.name, one.value, response_only=True, media_type=NDJSON) for one in LINES],
        parameters=[PLAN_KEY],
    )
    def stream(self, request: Request) -> StreamResponse:
        """Run tasks with high priority and stream each finished rollout as a line of JSON. Empty lines are keep-alives.

        The first line is the collection, the last one the reason for the end. Disconnecting cancels the remaining
        rollouts unless `keep` is set. With `group`, a line has the `figures` of a group: its statistics, and the
        advantages by rollout. Each rollout counts once; `weight` of a segment is 1 divided by their number.
        """
        asked = self.read_body(StreamRequestSerializer)
        if StreamResponse.is_full():
            raise TooManyStreams(f"This process has {settings.STREAMS} streams open (GYMWEB_STREAMS).")
        fields = dict(asked)
        grouped, keep, seconds = fields.pop("group"), fields.pop("keep"), fields.pop("seconds")
        options = Options(**{name: fields.pop(name) for name in TOKEN_CHOICES})
        collection = self._plan(request, fields, seconds)
        stream = RolloutStream(
            collection=collection,
            grouped=grouped,
            seconds=float(seconds),
            keep=keep,
            user=self.user,
            may_return=bool(read_key(request)),
            options=options,
            may_read=partial(still_may, self.user.pk, request.auth, Permission.COLLECT),
        )
        return StreamResponse(stream)

    def _plan(self, request: Request, fields: dict[str, Any], seconds: int) -> Collection:
        key = read_key(request)
        # Streaming options are not part of the plan.
        elsewhere = {"group", "keep", "seconds", *TOKEN_CHOICES}
        content = {name: value for name, value in dict(request.data).items() if name not in elsewhere}
        text = orjson.dumps(["stream", self.user.pk, content], option=orjson.OPT_SORT_KEYS, default=str)
        digest = hashlib.sha256(text).hexdigest()
        if earlier := find_planned(key or None, digest, self.user):
            return earlier
        fields["policy_model"] = self._policy_model(fields)
        version, task_ids = self._tasks(fields)
        plan = Plan(
            dataset=version.dataset,
            version=version.number,
            name=cut(f"Stream: {version.dataset.name} × {fields['policy_model'].name}", 200),
            max_seconds=seconds,
            **fields,
        )
        return plan_collection(
            plan, user=self.user, task_ids=task_ids, idempotency_key=key or None, request_digest=digest
        )

    def _policy_model(self, fields: dict[str, Any]) -> PolicyModel:
        endpoint = fields.pop("endpoint", None)
        if endpoint is None:
            model: PolicyModel = fields.pop("policy_model")
            return model
        if not self.may(Permission.ENDPOINTS):
            raise PermissionDenied
        try:
            return find_addressed(**endpoint, user=self.user)
        except ModelValidationError as wrong:
            raise serializers.ValidationError({"endpoint": wrong.message_dict}) from wrong

    def _tasks(self, fields: dict[str, Any]) -> tuple[DatasetVersion, list[int] | None]:
        """Return the version and its tasks; None for all tasks."""
        rows, environment, ids = (fields.pop(name, None) for name in ("rows", "environment", "task_ids"))
        if ids is None:
            try:
                return accept_rows(environment=environment, rows=rows, user=self.user), None
            except RowsRefused as wrong:
                errors = [
                    {"pointer": f"/rows/{one['row']}{one['pointer']}", "code": one["code"], "message": one["message"]}
                    for one in wrong.errors
                ]
                raise Problem(HTTPStatus.BAD_REQUEST, "invalid", str(wrong), errors=errors) from wrong
        found = dict(Task.objects.ready().active().filter(pk__in=ids).order_by().values_list("pk", "version_id"))
        if unknown := [pk for pk in ids if pk not in found][:SHOWN]:
            message = f"Unknown or retired tasks: {', '.join(map(str, unknown))}."
            raise serializers.ValidationError({"task_ids": message})
        if len(set(ids)) < len(ids):
            raise serializers.ValidationError({"task_ids": "A task id is repeated. Use repeats instead."})
        if len(set(found.values())) > 1:
            raise serializers.ValidationError(
                {"task_ids": "These tasks belong to several dataset versions. Give tasks of one version."}
            )
        version = DatasetVersion.objects.select_related("dataset").get(pk=found[ids[0]])
        return version, ids
