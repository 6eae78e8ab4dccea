"""Workers: the processes that run rollouts."""

import django_filters
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.query_filters import filter_set
from apps.rollouts.models import Worker
from apps.rollouts.steering.controls import drain_worker


class WorkerSerializer(serializers.ModelSerializer[Worker]):
    heartbeat_age = serializers.SerializerMethodField(help_text="Seconds since the last heartbeat.")
    is_stale = serializers.SerializerMethodField(
        help_text="The worker has not stopped, but its lease has expired. Other workers take over its rollouts."
    )
    rate = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Finished attempts per second, between the last two heartbeats."
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


class WorkerViewSet(RowViewSet):
    """Workers. For the rollouts of one, use `GET /api/v1/rollouts/?worker=ID`."""

    queryset = Worker.objects.all()
    serializer_class = WorkerSerializer
    filterset_class = filter_set(
        state=django_filters.ChoiceFilter(choices=Worker.State.choices),
        group=django_filters.CharFilter(field_name="group"),
    )
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "drain": Permission.WORKERS}

    @operation(responses=WorkerSerializer)
    def drain(self, request: Request, pk: str) -> Response:
        """Drain a worker: it claims no more rollouts and stops when its running rollouts have finished.

        An embedded worker starts again with its server.
        """
        return Response(WorkerSerializer(drain_worker(worker=self.get_object(), user=self.user)).data)
