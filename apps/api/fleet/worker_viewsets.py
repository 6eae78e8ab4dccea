"""Workers: the processes that run rollouts."""

import django_filters
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.rollouts.models import Worker
from apps.rollouts.steering.controls import drain_worker


class WorkerSerializer(serializers.ModelSerializer[Worker]):
    heartbeat_age = serializers.SerializerMethodField(help_text="Seconds since it was last heard of.")
    is_stale = serializers.SerializerMethodField(
        help_text="It says that it lives, but its lease has run out: others take over what it ran."
    )
    rate = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Attempts ended a second, between its last two heartbeats."
    )

    class Meta:
        model = Worker
        fields = [
            "id",
            "host",
            "pid",
            "group",
            "seats",
            "busy",
            "backlog",
            "trouble",
            "rate",
            "state",
            "is_stale",
            "started_at",
            "heartbeat_at",
            "heartbeat_age",
            "lease_expires_at",
        ]

    def get_heartbeat_age(self, worker: Worker) -> float:
        return max(0.0, (timezone.now() - worker.heartbeat_at).total_seconds())

    def get_is_stale(self, worker: Worker) -> bool:
        return worker.is_overdue(timezone.now())


class WorkerFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=Worker.State.choices)
    group = django_filters.CharFilter(field_name="group")

    class Meta:
        model = Worker
        fields: list[str] = []


class WorkerViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    """What a worker runs: `GET /api/v1/rollouts/?worker=ID`."""

    queryset = Worker.objects.all()
    serializer_class = WorkerSerializer
    filterset_class = WorkerFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "drain": Permission.WORKERS}

    @extend_schema(request=None, responses=WorkerSerializer)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:
        """Let it claim no more and leave when its rollouts have ended. An embedded one returns with the next start."""
        return Response(WorkerSerializer(drain_worker(worker=self.get_object(), user=self.person)).data)
