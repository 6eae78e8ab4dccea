"""Rollouts and their traces."""

from typing import Any

import django_filters
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request

from apps.accounts.permissions import Permission
from apps.api.filters import IdFilter
from apps.api.viewsets import TableViewSet
from apps.gym.items import dump_json
from apps.rollouts.models import Rollout


class RolloutSerializer(serializers.ModelSerializer[Rollout]):
    components = serializers.DictField(child=serializers.FloatField(), read_only=True)

    class Meta:
        model = Rollout
        fields = [
            "id",
            "collection",
            "task",
            "repeat",
            "seed",
            "status",
            "attempt",
            "reward",
            "components",
            "stop_reason",
            "error_kind",
            "error_message",
            "turns",
            "tool_calls",
            "tool_errors",
            "input_tokens",
            "output_tokens",
            "duration",
            "started_at",
            "finished_at",
        ]


class TraceEventSerializer(serializers.Serializer[Any]):
    seq = serializers.IntegerField()
    kind = serializers.CharField()
    event = serializers.DictField(help_text="The event as it was recorded; `type` names its kind.")


class TraceSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    events = TraceEventSerializer(many=True)


class RolloutFilter(django_filters.FilterSet):
    collection = IdFilter("collection")
    task = IdFilter("task")
    status = django_filters.ChoiceFilter(choices=Rollout.Status.choices)
    stop_reason = django_filters.CharFilter(field_name="stop_reason")
    error_kind = django_filters.CharFilter(field_name="error_kind")
    rewarded = django_filters.BooleanFilter(field_name="reward", lookup_expr="isnull", exclude=True)
    reward_min = django_filters.NumberFilter(field_name="reward", lookup_expr="gte")
    reward_max = django_filters.NumberFilter(field_name="reward", lookup_expr="lte")

    class Meta:
        model = Rollout
        fields: list[str] = []


class RolloutViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Rollout.objects.all()
    serializer_class = RolloutSerializer
    filterset_class = RolloutFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "trace": Permission.READ}

    @extend_schema(responses=TraceSerializer)
    @action(detail=True)
    def trace(self, request: Request, pk: str) -> HttpResponse:
        """The events of the latest attempt, in order."""
        rollout = self.get_object()
        events = rollout.events.filter(attempt=rollout.attempt).order_by("seq").values_list("seq", "kind", "payload")
        # The payloads are JSON as recorded: joining them keeps every number and key as it was, and decodes nothing.
        parts = [f'{{"seq":{seq},"kind":{dump_json(kind)},"event":{payload}}}' for seq, kind, payload in events]
        body = f'{{"rollout":{rollout.pk},"attempt":{rollout.attempt},"events":[{",".join(parts)}]}}'
        return HttpResponse(body, content_type="application/json")
