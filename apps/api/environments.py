"""Environments: tools, state and verifier of the tasks."""

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.viewsets import TableViewSet
from apps.environments.models import Adapter, Environment
from apps.policies.models import Health


class EnvironmentSerializer(serializers.ModelSerializer[Environment]):
    class Meta:
        model = Environment
        fields = [
            "id",
            "slug",
            "name",
            "description",
            "adapter",
            "builtin",
            "base_url",
            "verifies",
            "call_timeout",
            "verify_timeout",
            "max_tries",
            "concurrency",
            "health",
            "health_message",
            "health_checked_at",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["health", "health_message", "health_checked_at"]


class EnvironmentFilter(django_filters.FilterSet):
    adapter = django_filters.ChoiceFilter(choices=Adapter.choices)
    health = django_filters.ChoiceFilter(choices=Health.choices)

    class Meta:
        model = Environment
        fields: list[str] = []


class EnvironmentViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Environment.objects.all()
    serializer_class = EnvironmentSerializer
    filterset_class = EnvironmentFilter
    lookup_field = "slug"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
