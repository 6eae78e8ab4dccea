"""Reverifications: verify stored rollouts again, preview the changes and apply them."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.collections.figure_serializers import HistogramBinSerializer
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter, filter_set
from apps.api.framework.record_serializers import record_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.rollouts.models import Reverification, ReverifiedReward
from apps.rollouts.reverification.reverification_jobs import (
    apply_reverification,
    cancel_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.reverification.reward_changes import Comparison, compare_rewards


class ReverificationSerializer(serializers.ModelSerializer[Reverification]):
    filters = serializers.DictField(read_only=True)

    class Meta:
        model = Reverification
        fields = [
            "id",
            "collection",
            "filters",
            "forced",
            "replays",
            "state",
            "total",
            "verified",
            "changed",
            "failed",
            "applied",
            "stale",
            "cost",
            "message",
            "created_at",
            "finished_at",
        ]


@spec_serializer(ReverificationOrder)
class WishSerializer(DeclaredFields, serializers.Serializer[Any]):
    pass


@record_serializer(
    Comparison,
    failed="Failed verifications; the old reward stays.",
    newly_rewarded="Rollouts without an old reward.",
    errors="By kind.",
)
class ComparisonSerializer(serializers.Serializer[Any]):
    histogram = HistogramBinSerializer(many=True, help_text="Mean of new − old over changed rewards.")


class ReverifiedRewardSerializer(serializers.ModelSerializer[ReverifiedReward]):
    old_status = serializers.CharField(read_only=True, help_text="Status of the rollout before re-verification.")
    old_components = serializers.DictField(child=serializers.FloatField(), read_only=True)
    new_components = serializers.DictField(child=serializers.FloatField(), read_only=True)

    class Meta:
        model = ReverifiedReward
        fields = [
            "id",
            "rollout",
            "old_status",
            "old_reward",
            "old_components",
            "new_reward",
            "new_components",
            "changed",
            "fate",
            "error_kind",
            "error_message",
        ]


class ReverificationViewSet(RowViewSet):
    noun = "reverification"
    queryset = Reverification.objects.select_related("collection")
    serializer_class = ReverificationSerializer
    filterset_class = filter_set(
        collection=IdFilter("collection"), state=django_filters.ChoiceFilter(choices=Reverification.State.choices)
    )
    page_actions = frozenset({"list", "rewards"})
    permissions = {
        **dict.fromkeys(["list", "retrieve", "comparison", "rewards"], Permission.READ),
        **dict.fromkeys(["create", "apply", "cancel"], Permission.COLLECT),
    }

    @extend_schema(request=WishSerializer, responses={201: ReverificationSerializer})
    def create(self, request: Request) -> Response:
        """Re-verify rollouts without inference.

        A worker re-verifies in the background. No reward changes until the reverification is applied.
        """
        queued = queue_reverification(ReverificationOrder(**self.read_body(WishSerializer)), user=self.user)
        return Response(ReverificationSerializer(queued).data, status=HTTPStatus.CREATED)

    @operation("get", responses=ComparisonSerializer)
    def comparison(self, request: Request, pk: str) -> Response:
        """Return what applying would change, or has changed."""
        return Response(ComparisonSerializer(compare_rewards(self.get_object())).data)

    @operation("get", filterset_class=None, responses=ReverifiedRewardSerializer(many=True))
    def rewards(self, request: Request, pk: str) -> Response:
        """List old and new reward of every rollout, changed or not."""
        return self.answer_page(ReverifiedRewardSerializer, self.get_object().rewards.all())

    apply = row_action(
        "apply",
        apply_reverification,
        "Write the new rewards to the rollouts, in the background. Rollouts that changed meanwhile are skipped.",
    )
    cancel = row_action("cancel", cancel_reverification, "Cancel a reverification that is not applied yet.")
