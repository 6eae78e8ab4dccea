"""Policy models. Their secret goes in and never comes out."""

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.viewsets import TableViewSet
from apps.policies.models import Health, PolicyModel, Provider


class PolicyModelSerializer(serializers.ModelSerializer[PolicyModel]):
    sampling = serializers.DictField(required=False)
    api_key = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        trim_whitespace=True,
        help_text="Stored encrypted, never shown. Left out: the stored key stays.",
    )

    class Meta:
        model = PolicyModel
        fields = [
            "id",
            "slug",
            "name",
            "provider",
            "wire",
            "base_url",
            "model_name",
            "api_key",
            "api_key_hint",
            "sampling",
            "call_timeout",
            "max_tries",
            "concurrency",
            "mistake_rate",
            "health",
            "health_message",
            "health_checked_at",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["api_key_hint", "health", "health_message", "health_checked_at"]


class PolicyModelFilter(django_filters.FilterSet):
    provider = django_filters.ChoiceFilter(choices=Provider.choices)
    health = django_filters.ChoiceFilter(choices=Health.choices)

    class Meta:
        model = PolicyModel
        fields: list[str] = []


class PolicyModelViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PolicyModel.objects.all()
    serializer_class = PolicyModelSerializer
    filterset_class = PolicyModelFilter
    lookup_field = "slug"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
