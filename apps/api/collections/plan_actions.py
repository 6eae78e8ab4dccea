"""Plan, estimate and clone collections."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import PLAN_KEY, read_key
from apps.api.framework.record_serializers import record_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.tasks.prompt_templates import MAX_TEMPLATE
from apps.rollouts.plans.estimates import Estimate, estimate_plan
from apps.rollouts.plans.plan_spec import Plan, change_plan, plan_again
from apps.rollouts.plans.planning import plan_collection


class PromptTemplateSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Replaces the prompts of the tasks.

    `{field}` inserts a field of the row (a dotted path); `{prompt}` inserts the row's user message.
    """

    system = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)
    user = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TEMPLATE, trim_whitespace=False)


@spec_serializer(Plan)
class PlanSerializer(DeclaredFields, serializers.Serializer[Any]):
    prompt_template = PromptTemplateSerializer(required=False)


@record_serializer(
    Estimate,
    cost="USD at current prices; null if the model has no prices.",
    seconds="Null until a similar collection has run.",
    basis="Basis of the estimate.",
    based_on="Collections used for the estimate.",
)
class EstimateSerializer(serializers.Serializer[Any]):
    dataset = serializers.CharField(source="version.dataset.slug")
    version = serializers.IntegerField(source="version.number")


class PlanningActions(TableViewSet):
    """Plan, estimate and clone."""

    @extend_schema(
        request=PlanSerializer,
        responses={201: CollectionSerializer},
        parameters=[PLAN_KEY],
    )
    def create(self, request: Request) -> Response:
        """Plan a collection and queue its rollouts."""
        return self._plan(request, Plan(**self.read_body(PlanSerializer)))

    def _plan(self, request: Request, plan: Plan) -> Response:
        collection = plan_collection(plan, user=self.user, idempotency_key=read_key(request) or None)
        return Response(CollectionSerializer(collection).data, status=HTTPStatus.CREATED)

    @operation(detail=False, request=PlanSerializer, responses=EstimateSerializer)
    def estimate(self, request: Request) -> Response:
        """Estimate rollouts, tokens, cost and time of a plan without planning it."""
        return Response(EstimateSerializer(estimate_plan(Plan(**self.read_body(PlanSerializer)))).data)

    @operation(request=PlanSerializer(partial=True), responses={201: CollectionSerializer}, parameters=[PLAN_KEY])
    def clone(self, request: Request, pk: str) -> Response:
        """Plan a collection again on the same dataset version, with the changes in the body.

        `version` null means the latest version.
        """
        changes = self.read_body(PlanSerializer, partial=True)
        return self._plan(request, change_plan(plan_again(self.get_object()), changes))
