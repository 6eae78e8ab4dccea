"""Plans of collections: what may be chosen, what it would take, and the same again."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.agents.models import Agent
from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.collections.steering_actions import MAX_INTEGER, LimitsSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import HEADER, MAX_KEY_LENGTH, read_key
from apps.gym.tasks.prompt_templates import MAX_TEMPLATE
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.plans.clones import change_plan, plan_again
from apps.rollouts.plans.estimates import estimate_plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.plans.validation import LIMITS, MAX_MARKS, MAX_REPEATS
from apps.tasks.models import Dataset

IDEMPOTENCY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Planning again with the same key answers with the collection that exists.",
)
DEFAULTS = {field.name: field.get_default() for field in Collection._meta.fields if field.name in LIMITS}


class PromptTemplateSerializer(DeclaredFields, serializers.Serializer[Any]):
    """In place of the tasks' own prompts. `{gaps}` are dotted paths into the row; `{prompt}` is its user's message."""

    system = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)
    user = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)


class PlanSerializer(LimitsSerializer):
    dataset = serializers.SlugRelatedField(slug_field="slug", queryset=Dataset.objects.all())
    version = serializers.IntegerField(
        min_value=1,
        max_value=MAX_INTEGER,
        required=False,
        allow_null=True,
        help_text="The number of the dataset's version; null or left out: the latest. A clone has its source's.",
    )
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
            "version",
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


class PlanningActions(TableViewSet):
    """The part of the viewset of collections that plans them."""

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
        """Plan the same again, on the version it had; what the body names is changed. `version` null is the latest."""
        changes = PlanSerializer(data=request.data, partial=True)
        changes.is_valid(raise_exception=True)
        return self._plan(request, change_plan(plan_again(self.get_object()), changes.validated_data))
