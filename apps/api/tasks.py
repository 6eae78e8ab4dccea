"""Tasks: the rows of a dataset's versions."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.filters import SlugFilter
from apps.api.viewsets import TableViewSet
from apps.tasks.models import Task


class TaskSerializer(serializers.ModelSerializer[Task]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)

    class Meta:
        model = Task
        fields = ["id", "dataset", "version", "index", "external_id", "prompt_excerpt"]


class TaskWithRowSerializer(TaskSerializer):
    row = serializers.DictField(read_only=True, help_text="The row as it was uploaded.")

    class Meta(TaskSerializer.Meta):
        fields = [*TaskSerializer.Meta.fields, "row"]


class TaskFilter(django_filters.FilterSet):
    dataset = SlugFilter("dataset")
    version = django_filters.NumberFilter(field_name="version__number", min_value=0, max_value=2**31 - 1)
    external_id = django_filters.CharFilter(field_name="external_id")
    text = django_filters.CharFilter(field_name="prompt_excerpt", lookup_expr="icontains")

    class Meta:
        model = Task
        fields: list[str] = []


class TaskViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Task.objects.ready().select_related("dataset", "version")
    filterset_class = TaskFilter
    ordering = "id"
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}

    def get_queryset(self) -> Any:
        # Rows can be megabytes each: a list never carries them.
        return super().get_queryset().defer("row_json") if self.action == "list" else super().get_queryset()

    def get_serializer_class(self) -> type[TaskSerializer]:
        return TaskSerializer if self.action == "list" else TaskWithRowSerializer
