"""Preference pairs, and the sets that a rule made of a collection."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.declared import DeclaredFields
from apps.api.filters import IdFilter
from apps.api.viewsets import TableViewSet
from apps.exports.models import PairSet, PreferencePair
from apps.exports.pairing import build_pairs
from apps.rollouts.models import Collection


class PairSetSerializer(serializers.ModelSerializer[PairSet]):
    counts = serializers.DictField(child=serializers.IntegerField(), read_only=True)

    class Meta:
        model = PairSet
        fields = ["id", "collection", "margin", "min_chosen_reward", "pair_count", "counts", "created_at"]


class PairRuleSerializer(DeclaredFields, serializers.Serializer[Any]):
    collection = serializers.PrimaryKeyRelatedField(queryset=Collection.objects.present())
    margin = serializers.FloatField(min_value=0, default=0.1, help_text="chosen − rejected is at least this.")
    min_chosen_reward = serializers.FloatField(required=False, allow_null=True)


class PairSerializer(serializers.ModelSerializer[PreferencePair]):
    chosen_reward = serializers.FloatField(source="chosen.reward", read_only=True)
    rejected_reward = serializers.FloatField(source="rejected.reward", read_only=True)

    class Meta:
        model = PreferencePair
        fields = ["id", "pair_set", "task", "chosen", "rejected", "chosen_reward", "rejected_reward", "margin"]


class PairSetFilter(django_filters.FilterSet):
    collection = IdFilter("collection")

    class Meta:
        model = PairSet
        fields: list[str] = []


class PairFilter(django_filters.FilterSet):
    pair_set = IdFilter("pair_set")
    task = IdFilter("task")
    margin_min = django_filters.NumberFilter(field_name="margin", lookup_expr="gte")

    class Meta:
        model = PreferencePair
        fields: list[str] = []


class PairSetViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PairSet.objects.all()
    serializer_class = PairSetSerializer
    filterset_class = PairSetFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "create": Permission.PAIR}

    @extend_schema(request=PairRuleSerializer, responses={201: PairSetSerializer})
    def create(self, request: Request) -> Response:
        """Pair the best with the worst rollout of every task of a collection."""
        rule = PairRuleSerializer(data=request.data)
        rule.is_valid(raise_exception=True)
        pair_set = build_pairs(**rule.validated_data, user=self.person)
        return Response(PairSetSerializer(pair_set).data, status=HTTPStatus.CREATED)


class PairViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PreferencePair.objects.select_related("chosen", "rejected")
    serializer_class = PairSerializer
    filterset_class = PairFilter
    ordering = "id"
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
