"""Collections: dataset × agent × policy model × repeats, and what came of it."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.filters import SlugFilter
from apps.api.viewsets import TableViewSet
from apps.rollouts.models import Collection


class CollectionSerializer(serializers.ModelSerializer[Collection]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    environment = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    policy_model = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    sampling = serializers.DictField(read_only=True)
    mean_reward = serializers.FloatField(read_only=True, allow_null=True)

    class Meta:
        model = Collection
        fields = [
            "id",
            "name",
            "dataset",
            "version",
            "environment",
            "agent",
            "policy_model",
            "repeats",
            "limit",
            "seed",
            "sampling",
            "priority",
            "state",
            "total",
            "completed",
            "failed",
            "cancelled",
            "rewarded",
            "mean_reward",
            "input_tokens",
            "output_tokens",
            "created_at",
            "finished_at",
        ]


class CollectionFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=Collection.State.choices)
    dataset = SlugFilter("dataset")
    environment = SlugFilter("environment")
    agent = SlugFilter("agent")
    policy_model = SlugFilter("policy_model")

    class Meta:
        model = Collection
        fields: list[str] = []


class CollectionViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Collection.objects.select_related("dataset", "version", "environment", "agent", "policy_model")
    serializer_class = CollectionSerializer
    filterset_class = CollectionFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
