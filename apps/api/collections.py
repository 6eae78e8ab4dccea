"""Collections: dataset × agent × policy model × repeats, and what came of it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, get_args

import django_filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.agents.models import Agent
from apps.api.bodies import FILE_PARSERS, RAW_TYPES, open_files
from apps.api.collection_deletions import ChosenSerializer, CollectionDeletionSerializer, answer_deletion
from apps.api.declared import DeclaredFields
from apps.api.figures import QUERY_PARAMETERS as FIGURES
from apps.api.figures import FigureViewSet
from apps.api.filters import SlugFilter
from apps.api.metrics import MetricsSerializer
from apps.api.options import describe_form, read_options
from apps.api.problems import QueryProblem, flatten_errors
from apps.api.repeating import HEADER, MAX_KEY_LENGTH, read_key
from apps.api.viewsets import SLUG
from apps.gym.errors import ErrorKind
from apps.gym.prompting import MAX_TEMPLATE
from apps.gym.rolloutshapes.reading import FORMATS
from apps.policies.models import PolicyModel
from apps.rollouts.archiving import archive_collection, restore_collection
from apps.rollouts.cloning import plan_again
from apps.rollouts.controlling import (
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)
from apps.rollouts.deleting import queue_collection_deletion
from apps.rollouts.estimating import estimate_plan
from apps.rollouts.holding import find_holds
from apps.rollouts.importing import import_rollouts
from apps.rollouts.matching import File
from apps.rollouts.measuring import measure_collection
from apps.rollouts.models import Collection, CollectionQuerySet
from apps.rollouts.planning import LIMITS, MAX_MARKS, MAX_REPEATS, plan_collection
from apps.rollouts.removing import queue_rollout_deletion
from apps.rollouts.resolving import resolve_flags
from apps.tasks.models import Dataset, Upload

MAX_INTEGER = 2**31 - 1
IDEMPOTENCY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Planning again with the same key answers with the collection that exists.",
)


NAME = {"type": "string", "pattern": f"^{SLUG}$"}
DEFAULTS = {field.name: field.get_default() for field in Collection._meta.fields if field.name in LIMITS}


class CollectionSerializer(serializers.ModelSerializer[Collection]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    environment = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    policy_model = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    sampling = serializers.DictField(read_only=True)
    split_repeats = serializers.DictField(child=serializers.IntegerField(), read_only=True)
    splits = serializers.ListField(child=serializers.CharField(), read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)
    prompt_template = serializers.DictField(child=serializers.CharField(), read_only=True)
    resume_from = serializers.PrimaryKeyRelatedField[Any](read_only=True, allow_null=True)
    is_archived = serializers.BooleanField(read_only=True)
    snapshot_digest = serializers.CharField(
        read_only=True, help_text="SHA-256 of the resolved configuration: the same for what was run in the same way."
    )
    mean_reward = serializers.FloatField(read_only=True, allow_null=True)

    class Meta:
        model = Collection
        fields = [
            "id",
            "name",
            "dataset",
            "version",
            "environment",
            "agent",
            "policy_model",
            "repeats",
            "limit",
            "split_repeats",
            "splits",
            "tags",
            "search",
            "resume_from",
            "only_failed",
            "seed",
            "sampling",
            "prompt_template",
            *LIMITS,
            "state",
            "pause_reason",
            "is_archived",
            "snapshot_digest",
            "total",
            "completed",
            "failed",
            "cancelled",
            "retried",
            "rewarded",
            "mean_reward",
            "input_tokens",
            "output_tokens",
            "judge_tokens",
            "calls_without_usage",
            "cost",
            "created_at",
            "started_at",
            "finished_at",
        ]


class LimitsSerializer(DeclaredFields, serializers.ModelSerializer[Collection]):
    """What may be set when a collection is planned and while it runs."""

    priority = serializers.IntegerField(
        min_value=-1000, max_value=1000, required=False, help_text="Smaller is claimed first."
    )

    class Meta:
        model = Collection
        fields = [*LIMITS]
        extra_kwargs: ClassVar[dict[str, dict[str, Any]]] = {
            "concurrency": {"max_value": MAX_INTEGER},
            "max_seconds": {"max_value": MAX_INTEGER},
            "max_tokens": {"max_value": 2**63 - 1},
            "max_cost": {"max_value": 1e12},
        }


class PromptTemplateSerializer(DeclaredFields, serializers.Serializer[Any]):
    """In place of the tasks' own prompts. `{gaps}` are dotted paths into the row; `{prompt}` is its user's message."""

    system = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)
    user = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)


class PlanSerializer(LimitsSerializer):
    dataset = serializers.SlugRelatedField(slug_field="slug", queryset=Dataset.objects.all())
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all())
    policy_model = serializers.SlugRelatedField(slug_field="slug", queryset=PolicyModel.objects.all())
    repeats = serializers.IntegerField(
        min_value=1, max_value=MAX_REPEATS, default=1, help_text="Rollouts of each task."
    )
    # `limit` as elsewhere in this API, but of tasks: only the first so many.
    limit = serializers.IntegerField(
        min_value=1, max_value=MAX_INTEGER, required=False, allow_null=True, help_text="Only the first so many tasks."
    )
    split_repeats = serializers.DictField(
        child=serializers.IntegerField(min_value=1, max_value=MAX_REPEATS),
        required=False,
        help_text='Rollouts of each task by its split, such as {"train": 8, "validation": 2}; others get `repeats`.',
    )
    splits = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=MAX_MARKS,
        help_text="Only tasks of one of these splits.",
    )
    tags = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=MAX_MARKS,
        help_text="Only tasks that have all of these tags.",
    )
    search = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        help_text="Only tasks with these words in their id or in the beginning of their prompt.",
    )
    resume_from = serializers.PrimaryKeyRelatedField(
        queryset=Collection.objects.present(),
        required=False,
        allow_null=True,
        help_text="Only what failed, was cancelled or is missing in this earlier collection, on the version it had.",
    )
    only_failed = serializers.BooleanField(required=False, help_text="Of that, only what failed.")
    prompt_template = PromptTemplateSerializer(required=False)
    seed = serializers.IntegerField(min_value=0, max_value=MAX_INTEGER, default=0)
    sampling = serializers.DictField(required=False, help_text="Overrides the agent's and the model's.")
    name = serializers.CharField(max_length=200, required=False, allow_blank=True)

    class Meta(LimitsSerializer.Meta):
        fields = [
            "dataset",
            "agent",
            "policy_model",
            "repeats",
            "limit",
            "split_repeats",
            "splits",
            "tags",
            "search",
            "resume_from",
            "only_failed",
            "prompt_template",
            "seed",
            "sampling",
            "name",
            *LIMITS,
        ]
        # The defaults of the rows, said in the schema too.
        extra_kwargs = {
            name: {**LimitsSerializer.Meta.extra_kwargs.get(name, {}), "default": DEFAULTS[name]} for name in LIMITS
        }


class EstimateSerializer(serializers.Serializer[Any]):
    dataset = serializers.CharField(source="version.dataset.slug")
    version = serializers.IntegerField(source="version.number")
    tasks = serializers.IntegerField()
    rollouts = serializers.IntegerField()
    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="USD by the prices of now; 0 where the model has none.")
    seconds = serializers.FloatField(allow_null=True, help_text="Null where nothing like it has run.")
    basis = serializers.CharField(help_text="Where this comes from.")
    based_on = serializers.ListField(child=serializers.IntegerField(), help_text="The collections that were measured.")


class RetrySerializer(DeclaredFields, serializers.Serializer[Any]):
    error_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=get_args(ErrorKind)),
        required=False,
        allow_empty=False,
        help_text="Only the rollouts that failed with one of these; left out: all that failed.",
    )


class QueuedSerializer(serializers.Serializer[Any]):
    queued = serializers.IntegerField(help_text="Rollouts that were queued again.")


class ResolvedSerializer(serializers.Serializer[Any]):
    resolved = serializers.IntegerField(help_text="Rollouts that were flagged.")


IMPORT_PARAMETERS = [
    OpenApiParameter("dataset", NAME, description="Required, here or in the form."),
    OpenApiParameter("agent", NAME, default="default"),
    OpenApiParameter("policy_model", NAME, description="Left out: one that is named as in the rows."),
    OpenApiParameter("name", str),
    OpenApiParameter(
        "format",
        str,
        enum=list(FORMATS),
        default="auto",
        description="What the lines are; auto: by their keys.",
    ),
    OpenApiParameter("on_error", str, enum=Upload.OnError.values, default=Upload.OnError.REJECT.value),
]
IMPORT_OPTIONS = frozenset(one.name for one in IMPORT_PARAMETERS)


class ImportSerializer(serializers.Serializer[Any]):
    dataset = serializers.SlugRelatedField(slug_field="slug", queryset=Dataset.objects.select_related("environment"))
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all(), default=None)
    policy_model = serializers.SlugRelatedField(slug_field="slug", queryset=PolicyModel.objects.all(), required=False)
    name = serializers.CharField(max_length=200, required=False, allow_blank=True)
    format = serializers.ChoiceField(choices=list(FORMATS), default="auto")
    on_error = serializers.ChoiceField(choices=Upload.OnError.choices, default=Upload.OnError.REJECT)

    def validate_agent(self, agent: Agent | None) -> Agent:
        found = agent or Agent.objects.filter(slug="default").first()
        if found is None:
            raise serializers.ValidationError("There is no agent named default: name one.")
        return found


class BadLineSerializer(serializers.Serializer[Any]):
    file = serializers.CharField()
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class ImportedSerializer(serializers.Serializer[Any]):
    collection = CollectionSerializer(read_only=True)
    refused = serializers.IntegerField(help_text="Lines that were left out.")
    superseded = serializers.IntegerField(help_text="Failures of attempts that were made again, which were left out.")
    errors = BadLineSerializer(many=True, read_only=True, help_text="The first of them.")  # type: ignore[assignment]


class CollectionFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=Collection.State.choices)
    dataset = SlugFilter("dataset")
    environment = SlugFilter("environment")
    agent = SlugFilter("agent")
    policy_model = SlugFilter("policy_model")
    archived = django_filters.ChoiceFilter(
        choices=[("true", "only those in the archive"), ("all", "those too")],
        method="filter_archived",
        label="Left out: without those in the archive.",
    )

    class Meta:
        model = Collection
        fields: list[str] = []

    def filter_archived(self, queryset: CollectionQuerySet, name: str, value: str) -> CollectionQuerySet:
        return queryset.filter(archived_at__isnull=False) if value == "true" else queryset


class CollectionDetailSerializer(CollectionSerializer):
    held_back_by = serializers.SerializerMethodField(
        help_text="Why its rollouts wait: breakers that are open, an environment whose server is unwell"
    )

    snapshot = serializers.DictField(
        read_only=True, help_text="The resolved configuration: agent, model, environment, sampling and choice of tasks."
    )

    class Meta(CollectionSerializer.Meta):
        fields = [*CollectionSerializer.Meta.fields, "held_back_by", "snapshot"]

    def get_held_back_by(self, collection: Collection) -> list[str]:
        return [str(hold) for hold in find_holds(collection)]


class CollectionViewSet(ListModelMixin, RetrieveModelMixin, FigureViewSet):
    queryset = Collection.objects.present().select_related("dataset", "version", "environment", "agent", "policy_model")
    serializer_class = CollectionSerializer
    filterset_class = CollectionFilter
    lookup_value_regex = "[0-9]+"
    query_parameters = {
        **FIGURES,
        "import_stored": IMPORT_OPTIONS,
    }
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.COLLECT,
        "import_stored": Permission.COLLECT,
        "estimate": Permission.COLLECT,
        "clone": Permission.COLLECT,
        "archive": Permission.COLLECT,
        "restore": Permission.COLLECT,
        "destroy": Permission.COLLECT,
        "delete_rollouts": Permission.COLLECT,
        "partial_update": Permission.COLLECT,
        "pause": Permission.COLLECT,
        "resume": Permission.COLLECT,
        "cancel": Permission.COLLECT,
        "retry": Permission.COLLECT,
        "resolve_flags": Permission.EXPORT,
        "metrics": Permission.READ,
        "breakdown": Permission.READ,
        "profile": Permission.READ,
        "contrast": Permission.READ,
    }

    # A plan keeps its key: the same again answers with the collection as it is now, for as long as it is there.
    own_repeats = frozenset({"create", "clone"})
    problems = {"contrast": {409}, "import_stored": {507}}

    def get_queryset(self) -> Any:
        rows: Any = super().get_queryset()
        return rows.listed() if self.action == "list" and not self.request.query_params.get("archived") else rows

    def get_serializer_class(self) -> type[CollectionSerializer]:
        return CollectionDetailSerializer if self.action == "retrieve" else CollectionSerializer

    @extend_schema(
        request=PlanSerializer,
        responses={201: CollectionSerializer},
        parameters=[IDEMPOTENCY],
    )
    def create(self, request: Request) -> Response:
        """Plan a collection: its rollouts are queued for the workers."""
        plan = PlanSerializer(data=request.data)
        plan.is_valid(raise_exception=True)
        return self._plan(request, plan.validated_data)

    def _plan(self, request: Request, plan: Mapping[str, Any]) -> Response:
        key = read_key(request)
        collection = plan_collection(**plan, user=self.person, idempotency_key=key or None)
        return Response(CollectionSerializer(collection).data, status=HTTPStatus.CREATED)

    @extend_schema(request=PlanSerializer, responses=EstimateSerializer)
    @action(detail=False, methods=["post"])
    def estimate(self, request: Request) -> Response:
        """What a plan would take, without planning it: rollouts, tokens, cost and time."""
        plan = PlanSerializer(data=request.data)
        plan.is_valid(raise_exception=True)
        return Response(EstimateSerializer(estimate_plan(plan.validated_data)).data)

    @extend_schema(
        request=PlanSerializer(partial=True), responses={201: CollectionSerializer}, parameters=[IDEMPOTENCY]
    )
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        """Plan the same again; what the body names is changed."""
        changes = PlanSerializer(data=request.data, partial=True)
        changes.is_valid(raise_exception=True)
        return self._plan(request, {**plan_again(self.get_object()), **changes.validated_data})

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def archive(self, request: Request, pk: str) -> Response:
        """Lists leave it out from now on; nothing of it changes."""
        return Response(CollectionSerializer(archive_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Lists show it again."""
        return Response(CollectionSerializer(restore_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(responses={202: CollectionDeletionSerializer})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete it with its rollouts, traces and pairs: a worker does it, and the answer's address tells how far."""
        return answer_deletion(queue_collection_deletion(collection=self.get_object(), user=self.person))

    @extend_schema(request=ChosenSerializer, responses={202: CollectionDeletionSerializer})
    @action(detail=True, methods=["post"])
    def delete_rollouts(self, request: Request, pk: str) -> Response:
        """Delete some of its rollouts, with their traces and comments, once it has ended: a worker does it, and the
        answer's address tells how far. The collection stays and counts what is left."""
        asked = ChosenSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        chosen = dict(asked.validated_data)
        return answer_deletion(queue_rollout_deletion(collection=self.get_object(), chosen=chosen, user=self.person))

    @extend_schema(
        request={
            "multipart/form-data": describe_form(
                {"type": "array", "items": {"type": "string", "format": "binary"}}, IMPORT_PARAMETERS
            ),
            **dict.fromkeys(RAW_TYPES, OpenApiTypes.BINARY),
        },
        responses={201: ImportedSerializer, 200: ImportedSerializer},
        parameters=IMPORT_PARAMETERS,
    )
    @action(detail=False, methods=["post"], url_path="import", parser_classes=FILE_PARSERS)
    def import_stored(self, request: Request) -> Response:
        """Stored rollouts as a collection: rows of NeMo Gym, results of verifiers, or chat logs. The body is one JSONL
        file, or a form with several as `file`. 200 where these files were imported before."""
        options = read_options(request, IMPORT_OPTIONS, several=True)
        asked = ImportSerializer(data=options)
        try:
            asked.is_valid(raise_exception=True)
        except serializers.ValidationError as wrong:
            raise QueryProblem(
                [
                    {**error, "pointer": options.pointer(error["pointer"].lstrip("/"))}
                    for error in flatten_errors(wrong.get_full_details())
                ]
            ) from wrong
        with open_files(request) as files:
            imported = import_rollouts(
                files=[File(name, stream) for name, stream in files], **asked.validated_data, user=self.person
            )
        answer = {"collection": imported.collection, "refused": imported.refused}
        answer |= {"superseded": imported.superseded, "errors": imported.errors}
        status = HTTPStatus.CREATED if imported.created else HTTPStatus.OK
        return Response(ImportedSerializer(answer).data, status=status)

    @extend_schema(request=LimitsSerializer, responses=CollectionSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change priority, concurrency and limits, while it runs too. A limit that is null is none."""
        limits = LimitsSerializer(data=request.data, partial=True)
        limits.is_valid(raise_exception=True)
        collection = adjust_collection(
            collection=self.get_object(), changes=dict(limits.validated_data), user=self.person
        )
        return Response(CollectionSerializer(collection).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Claim no more of it; what runs goes on to its end."""
        return Response(CollectionSerializer(pause_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Claim of it again. Where a limit paused it, the limit has to be raised first."""
        return Response(CollectionSerializer(resume_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=RetrySerializer, responses=QueuedSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Queue the failed rollouts again, all or by error kind; their earlier attempts stay readable."""
        asked = RetrySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        kinds = asked.validated_data.get("error_kinds", [])
        queued = retry_failed(collection=self.get_object(), error_kinds=kinds, user=self.person)
        return Response(QueuedSerializer({"queued": queued}).data)

    @extend_schema(request=None, responses=ResolvedSerializer)
    @action(detail=True, methods=["post"])
    def resolve_flags(self, request: Request, pk: str) -> Response:
        """Say that somebody has looked at what was redacted of its ended rollouts: exports take them again."""
        resolved = resolve_flags(collection=self.get_object(), user=self.person)
        return Response(ResolvedSerializer({"resolved": resolved}).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel what is queued at once, and what runs within two seconds."""
        return Response(CollectionSerializer(cancel_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(responses=MetricsSerializer)
    @action(detail=True)
    def metrics(self, request: Request, pk: str) -> Response:
        """Rewards, pass@k, solve buckets, stop reasons and errors."""
        return Response(MetricsSerializer(measure_collection(self.get_object())).data)
