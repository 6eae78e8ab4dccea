"""Datasets: versioned collections of tasks."""

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.filters import SlugFilter
from apps.api.viewsets import TableViewSet
from apps.environments.models import Environment
from apps.tasks.models import Dataset, DatasetVersion


class VersionSerializer(serializers.ModelSerializer[DatasetVersion]):
    class Meta:
        model = DatasetVersion
        fields = ["number", "state", "task_count", "content_hash", "note", "created_at"]


class DatasetSerializer(serializers.ModelSerializer[Dataset]):
    environment = serializers.SlugRelatedField(slug_field="slug", queryset=Environment.objects.all())
    versions = VersionSerializer(many=True, read_only=True)

    class Meta:
        model = Dataset
        fields = ["id", "slug", "name", "description", "environment", "versions", "created_at"]


class DatasetFilter(django_filters.FilterSet):
    environment = SlugFilter("environment")
    name = django_filters.CharFilter(field_name="name", lookup_expr="icontains")

    class Meta:
        model = Dataset
        fields: list[str] = []


class DatasetViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Dataset.objects.select_related("environment").prefetch_related("versions")
    serializer_class = DatasetSerializer
    filterset_class = DatasetFilter
    lookup_field = "slug"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
