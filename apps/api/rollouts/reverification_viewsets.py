"""Reverifications: stored rollouts verified again, what that would change, and its application."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.collections.figure_serializers import HistogramBinSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter
from apps.rollouts.models import Collection, Reverification, ReverifiedReward
from apps.rollouts.reverification.reverification_jobs import (
    apply_reverification,
    cancel_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reward_changes import compare_rewards


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


class WishSerializer(DeclaredFields, serializers.Serializer[Any]):
    collection = serializers.PrimaryKeyRelatedField(queryset=Collection.objects.present().select_related("environment"))
    filters = serializers.DictField(
        required=False,
        help_text="`judge_failures`, `min_reward`, `max_reward`, `stop_reason`, `error_kind`, `ids`; left out: all.",
    )
    force = serializers.BooleanField(
        default=False, help_text="Even where the verifier may need the state of the attempt."
    )
    replay = serializers.BooleanField(default=False, help_text="Make the recorded tool calls again first.")


class ComparisonSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    verified = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Not verified: the old reward stays.")
    better = serializers.IntegerField()
    worse = serializers.IntegerField()
    newly_rewarded = serializers.IntegerField(help_text="Had no reward before.")
    old_mean = serializers.FloatField(allow_null=True)
    new_mean = serializers.FloatField(allow_null=True)
    errors = serializers.DictField(child=serializers.IntegerField(), help_text="By kind.")  # type: ignore[assignment]
    histogram = HistogramBinSerializer(many=True, help_text="Of new − old, where it changed.")


class ReverifiedRewardSerializer(serializers.ModelSerializer[ReverifiedReward]):
    old_status = serializers.CharField(read_only=True, help_text="The rollout's status when it was verified again.")
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


class ReverificationFilter(django_filters.FilterSet):
    collection = IdFilter("collection")
    state = django_filters.ChoiceFilter(choices=Reverification.State.choices)

    class Meta:
        model = Reverification
        fields: list[str] = []


class ReverificationViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Reverification.objects.select_related("collection")
    serializer_class = ReverificationSerializer
    filterset_class = ReverificationFilter
    lookup_value_regex = "[0-9]+"
    page_actions = frozenset({"list", "rewards"})
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "comparison": Permission.READ,
        "rewards": Permission.READ,
        "create": Permission.COLLECT,
        "apply": Permission.COLLECT,
        "cancel": Permission.COLLECT,
    }

    @extend_schema(request=WishSerializer, responses={201: ReverificationSerializer})
    def create(self, request: Request) -> Response:
        """Verify rollouts again without inference: a worker does it, and nothing changes until it is applied."""
        wish = WishSerializer(data=request.data)
        wish.is_valid(raise_exception=True)
        queued = queue_reverification(**wish.validated_data, user=self.person)
        return Response(ReverificationSerializer(queued).data, status=HTTPStatus.CREATED)

    @extend_schema(responses=ComparisonSerializer)
    @action(detail=True)
    def comparison(self, request: Request, pk: str) -> Response:
        """What would change, or has."""
        return Response(ComparisonSerializer(compare_rewards(self.get_object())).data)

    @extend_schema(responses=ReverifiedRewardSerializer(many=True))
    @action(detail=True, filterset_class=None)
    def rewards(self, request: Request, pk: str) -> Response:
        """Old and new reward of every rollout, changed or not."""
        page = self.paginate_queryset(self.get_object().rewards.all())
        return self.get_paginated_response(self.in_part(ReverifiedRewardSerializer(page, many=True)).data)

    @extend_schema(request=None, responses=ReverificationSerializer)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Give the rollouts their new rewards; a worker does it. A rollout that changed meanwhile is left alone."""
        applied = apply_reverification(reverification=self.get_object(), user=self.person)
        return Response(ReverificationSerializer(applied).data)

    @extend_schema(request=None, responses=ReverificationSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Drop it before it is applied."""
        cancelled = cancel_reverification(reverification=self.get_object(), user=self.person)
        return Response(ReverificationSerializer(cancelled).data)
