"""Suites: datasets that are collected and reported together."""

from http import HTTPStatus
from typing import Any

from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.collections.plan_actions import PromptTemplateSerializer
from apps.api.framework.base_viewsets import SlugViewSet, operation, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import PLAN_KEY, read_key
from apps.api.framework.spec_serializers import spec_serializer
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.suite_plans import SUITE_OPTIONS, plan_suite
from apps.tasks.models import Dataset, Suite
from apps.tasks.suite_changes import MAX_DATASETS, delete_suite, save_suite


class SuiteSerializer(DeclaredFields, serializers.ModelSerializer[Suite]):
    datasets: Any = serializers.SlugRelatedField(
        many=True,
        slug_field="slug",
        queryset=Dataset.objects.all(),
        help_text=f"Slugs in the order of the columns, at most {MAX_DATASETS}.",
    )

    class Meta:
        model = Suite
        fields = ["id", "slug", "name", "datasets", "created_at"]


@spec_serializer(Plan, *SUITE_OPTIONS)
class SuitePlanSerializer(DeclaredFields, serializers.Serializer[Any]):
    prompt_template = PromptTemplateSerializer(required=False)


class SuiteViewSet(DestroyModelMixin, SlugViewSet):
    noun = "suite"
    save_row = staticmethod(save_suite)
    queryset = Suite.objects.with_datasets()
    serializer_class = SuiteSerializer
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update", "destroy", "collect"], Permission.COLLECT),
    }
    # Plans store their key.
    own_idempotency = frozenset({"collect"})

    perform_destroy = row_deletion(delete_suite, "Delete a suite. Its datasets and their collections stay.")

    @operation(
        request=SuitePlanSerializer,
        responses={201: CollectionSerializer(many=True)},
        parameters=[PLAN_KEY],
        pagination_class=None,
        filter_backends=[],
    )
    def collect(self, request: Request, slug: str) -> Response:
        """Plan a collection for the latest version of each dataset, all with these settings.

        Either all are planned or none. `/api/v1/collections/matrix/?suite=` returns their figures.
        """
        options = self.read_body(SuitePlanSerializer)
        planned = plan_suite(
            suite=self.get_object(), options=options, user=self.user, idempotency_key=read_key(request) or None
        )
        return Response(CollectionSerializer(planned, many=True).data, status=HTTPStatus.CREATED)
