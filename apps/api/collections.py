"""Collections: dataset × agent × policy model × repeats, and what came of it."""

from http import HTTPStatus
from typing import Any, get_args

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
from apps.api.declared import DeclaredFields
from apps.api.figures import QUERY_PARAMETERS as FIGURES
from apps.api.figures import FigureViewSet
from apps.api.filters import SlugFilter
from apps.api.metrics import MetricsSerializer
from apps.api.problems import QueryProblem, flatten_errors
from apps.gym.errors import ErrorKind
from apps.policies.models import PolicyModel
from apps.rollouts.controlling import (
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)
from apps.rollouts.holding import find_holds
from apps.rollouts.importing import import_rollouts
from apps.rollouts.matching import File
from apps.rollouts.measuring import measure_collection
from apps.rollouts.models import Collection
from apps.rollouts.planning import LIMITS, plan_collection
from apps.tasks.models import Dataset, Upload

MAX_REPEATS = 10_000
MAX_INTEGER = 2**31 - 1
IDEMPOTENCY_HEADER = "Idempotency-Key"


DEFAULTS = {field.name: field.get_default() for field in Collection._meta.fields if field.name in LIMITS}


class CollectionSerializer(serializers.ModelSerializer[Collection]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    environment = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    policy_model = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    sampling = serializers.DictField(read_only=True)
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
            "seed",
            "sampling",
            *LIMITS,
            "state",
            "pause_reason",
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
        extra_kwargs = {
            "concurrency": {"max_value": MAX_INTEGER},
            "max_seconds": {"max_value": MAX_INTEGER},
            "max_tokens": {"max_value": 2**63 - 1},
        }


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
            "seed",
            "sampling",
            "name",
            *LIMITS,
        ]
        # The defaults of the rows, said in the schema too.
        extra_kwargs = {
            name: {**LimitsSerializer.Meta.extra_kwargs.get(name, {}), "default": DEFAULTS[name]} for name in LIMITS
        }


class RetrySerializer(DeclaredFields, serializers.Serializer[Any]):
    error_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=get_args(ErrorKind)),
        required=False,
        allow_empty=False,
        help_text="Only the rollouts that failed with one of these; left out: all that failed.",
    )


class QueuedSerializer(serializers.Serializer[Any]):
    queued = serializers.IntegerField(help_text="Rollouts that were queued again.")


class ImportSerializer(serializers.Serializer[Any]):
    dataset = serializers.SlugRelatedField(slug_field="slug", queryset=Dataset.objects.select_related("environment"))
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all(), default=None)
    policy_model = serializers.SlugRelatedField(slug_field="slug", queryset=PolicyModel.objects.all(), required=False)
    name = serializers.CharField(max_length=200, required=False, allow_blank=True)
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
    errors = BadLineSerializer(many=True, read_only=True, help_text="The first of them.")  # type: ignore[assignment]


class CollectionFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=Collection.State.choices)
    dataset = SlugFilter("dataset")
    environment = SlugFilter("environment")
    agent = SlugFilter("agent")
    policy_model = SlugFilter("policy_model")

    class Meta:
        model = Collection
        fields: list[str] = []


class CollectionDetailSerializer(CollectionSerializer):
    held_back_by = serializers.SerializerMethodField(
        help_text="Why its rollouts wait: breakers that are open, an environment whose server is unwell"
    )

    class Meta(CollectionSerializer.Meta):
        fields = [*CollectionSerializer.Meta.fields, "held_back_by"]

    def get_held_back_by(self, collection: Collection) -> list[str]:
        return [str(hold) for hold in find_holds(collection)]


class CollectionViewSet(ListModelMixin, RetrieveModelMixin, FigureViewSet):
    queryset = Collection.objects.select_related("dataset", "version", "environment", "agent", "policy_model")
    serializer_class = CollectionSerializer
    filterset_class = CollectionFilter
    lookup_value_regex = "[0-9]+"
    query_parameters = {
        **FIGURES,
        "import_stored": frozenset({"dataset", "agent", "policy_model", "name", "on_error"}),
    }
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.COLLECT,
        "import_stored": Permission.COLLECT,
        "partial_update": Permission.COLLECT,
        "pause": Permission.COLLECT,
        "resume": Permission.COLLECT,
        "cancel": Permission.COLLECT,
        "retry": Permission.COLLECT,
        "metrics": Permission.READ,
        "breakdown": Permission.READ,
        "profile": Permission.READ,
        "contrast": Permission.READ,
    }

    def get_serializer_class(self) -> type[CollectionSerializer]:
        return CollectionDetailSerializer if self.action == "retrieve" else CollectionSerializer

    @extend_schema(
        request=PlanSerializer,
        responses={201: CollectionSerializer},
        parameters=[
            OpenApiParameter(
                IDEMPOTENCY_HEADER,
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                description="Planning again with the same key answers with the collection that exists.",
            )
        ],
    )
    def create(self, request: Request) -> Response:
        """Plan a collection: its rollouts are queued for the workers."""
        plan = PlanSerializer(data=request.data)
        plan.is_valid(raise_exception=True)
        key = request.headers.get(IDEMPOTENCY_HEADER, "")
        if len(key) > 128:
            raise serializers.ValidationError({IDEMPOTENCY_HEADER: "This header has at most 128 characters."})
        collection = plan_collection(**plan.validated_data, user=self.person, idempotency_key=key or None)
        return Response(CollectionSerializer(collection).data, status=HTTPStatus.CREATED)

    @extend_schema(
        request={
            "multipart/form-data": {
                "type": "object",
                "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
            },
            **dict.fromkeys(RAW_TYPES, OpenApiTypes.BINARY),
        },
        responses={201: ImportedSerializer, 200: ImportedSerializer},
        parameters=[
            OpenApiParameter("dataset", str, required=True),
            OpenApiParameter("agent", str, default="default"),
            OpenApiParameter("policy_model", str, description="Left out: one that is named as in the rows."),
            OpenApiParameter("name", str),
            OpenApiParameter("on_error", str, enum=Upload.OnError.values, default=Upload.OnError.REJECT.value),
        ],
    )
    @action(detail=False, methods=["post"], url_path="import", parser_classes=FILE_PARSERS)
    def import_stored(self, request: Request) -> Response:
        """Stored rollouts as a collection: the body is one JSONL file, or a form with several as `file`. 200 where
        these files were imported before."""
        asked = ImportSerializer(data=request.query_params.dict())
        try:
            asked.is_valid(raise_exception=True)
        except serializers.ValidationError as wrong:
            raise QueryProblem(
                [
                    {**error, "pointer": f"?{error['pointer'].lstrip('/')}"}
                    for error in flatten_errors(wrong.get_full_details())
                ]
            ) from wrong
        with open_files(request) as files:
            imported = import_rollouts(
                files=[File(name, stream) for name, stream in files], **asked.validated_data, user=self.person
            )
        answer = {"collection": imported.collection, "refused": imported.refused, "errors": imported.errors}
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
