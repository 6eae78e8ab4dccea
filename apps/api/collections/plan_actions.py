"""Plan, estimate and clone collections."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import PLAN_KEY, read_key
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.tasks.prompt_templates import MAX_TEMPLATE
from apps.rollouts.plans.clones import change_plan, plan_again
from apps.rollouts.plans.estimates import estimate_plan
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection


class PromptTemplateSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Replaces the prompts of the tasks. `{gaps}` are dotted paths into the row; `{prompt}` is its own user message."""

    system = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)
    user = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)


@spec_serializer(Plan)
class PlanSerializer(DeclaredFields, serializers.Serializer[Any]):
    prompt_template = PromptTemplateSerializer(required=False)


class EstimateSerializer(serializers.Serializer[Any]):
    dataset = serializers.CharField(source="version.dataset.slug")
    version = serializers.IntegerField(source="version.number")
    tasks = serializers.IntegerField()
    rollouts = serializers.IntegerField()
    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="USD at current prices; 0 if the model has none.")
    seconds = serializers.FloatField(allow_null=True, help_text="Null until a similar collection has run.")
    basis = serializers.CharField(help_text="The data behind the estimate.")
    based_on = serializers.ListField(child=serializers.IntegerField(), help_text="Collections that it was measured on.")


class PlanningActions(TableViewSet):
    """Plan, estimate and clone."""

    @extend_schema(
        request=PlanSerializer,
        responses={201: CollectionSerializer},
        parameters=[PLAN_KEY],
    )
    def create(self, request: Request) -> Response:
        """Plan a collection: its rollouts are queued for the workers."""
        plan = PlanSerializer(data=request.data)
        plan.is_valid(raise_exception=True)
        return self._plan(request, Plan(**plan.validated_data))

    def _plan(self, request: Request, plan: Plan) -> Response:
        key = read_key(request)
        collection = plan_collection(plan, user=self.person, idempotency_key=key or None)
        return Response(CollectionSerializer(collection).data, status=HTTPStatus.CREATED)

    @extend_schema(request=PlanSerializer, responses=EstimateSerializer)
    @action(detail=False, methods=["post"])
    def estimate(self, request: Request) -> Response:
        """Estimate rollouts, tokens, cost and time of a plan without planning it."""
        plan = PlanSerializer(data=request.data)
        plan.is_valid(raise_exception=True)
        return Response(EstimateSerializer(estimate_plan(Plan(**plan.validated_data))).data)

    @extend_schema(request=PlanSerializer(partial=True), responses={201: CollectionSerializer}, parameters=[PLAN_KEY])
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        """Plan a collection again on its version, with the changes of the body. `version` null is the latest."""
        changes = PlanSerializer(data=request.data, partial=True)
        changes.is_valid(raise_exception=True)
        return self._plan(request, change_plan(plan_again(self.get_object()), changes.validated_data))
