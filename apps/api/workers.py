"""Workers: the processes that run rollouts."""

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.viewsets import TableViewSet
from apps.rollouts.models import Worker


class WorkerSerializer(serializers.ModelSerializer[Worker]):
    class Meta:
        model = Worker
        fields = ["id", "host", "pid", "seats", "busy", "state", "started_at", "heartbeat_at", "lease_expires_at"]


class WorkerFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=Worker.State.choices)

    class Meta:
        model = Worker
        fields: list[str] = []


class WorkerViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Worker.objects.all()
    serializer_class = WorkerSerializer
    filterset_class = WorkerFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
