"""Tasks: rows of dataset versions, with splits and tags."""

from typing import Any

import django_filters
from django.db.models import F
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import FlagFilter, SlugFilter
from apps.rollouts.search.keyset_pages import Sort
from apps.tasks.models import DatasetVersion, Task, TaskQuerySet
from apps.tasks.parent_spans import span
from apps.tasks.row_matching import key_of
from apps.tasks.stored_images import full_row
from apps.tasks.task_marks import MAX_TASKS, mark_tasks


class TaskSerializer(serializers.ModelSerializer[Task]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Task
        fields = ["id", "dataset", "version", "index", "external_id", "prompt_excerpt", "split", "tags", "is_retired"]


class _RowField(serializers.DictField):
    def to_representation(self, task: Task) -> dict[str, Any]:  # type: ignore[override]
        return full_row(task)


class TaskWithRowSerializer(TaskSerializer):
    row = _RowField(source="*", read_only=True, help_text="The uploaded row.")

    class Meta(TaskSerializer.Meta):
        fields = [*TaskSerializer.Meta.fields, "row"]


class MarkSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Omitted fields do not change."""

    split = serializers.CharField(required=False, allow_blank=True, max_length=64)
    add_tags = serializers.ListField(child=serializers.CharField(max_length=64), required=False, max_length=32)
    remove_tags = serializers.ListField(child=serializers.CharField(max_length=64), required=False, max_length=32)
    retired = serializers.BooleanField(required=False, help_text="New collections skip retired tasks.")


class MarkManySerializer(MarkSerializer):
    tasks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_KEY), allow_empty=False, max_length=MAX_TASKS
    )


class MarkedSerializer(serializers.Serializer[Any]):
    marked = serializers.IntegerField()


class TaskFilter(django_filters.FilterSet):
    dataset = SlugFilter("dataset")
    version = django_filters.NumberFilter(field_name="version__number", min_value=0, max_value=2**31 - 1)
    external_id = django_filters.CharFilter(field_name="external_id", strip=False)
    text = django_filters.CharFilter(field_name="prompt_excerpt", lookup_expr="icontains")
    split = django_filters.CharFilter(field_name="split")
    tag = django_filters.CharFilter(method="filter_tag")
    is_retired = FlagFilter("is_retired")

    def filter_queryset(self, queryset: TaskQuerySet) -> TaskQuerySet:
        # Filters by version ids, whose indexes contain the tasks. Joining names would search all tasks.
        given, versions = self.form.cleaned_data, DatasetVersion.objects.all()
        if given.get("dataset"):
            versions = versions.filter(dataset__slug=given["dataset"])
        if given.get("version") is not None:
            versions = versions.filter(number=given["version"])
        if given.get("dataset"):
            queryset = span(queryset, "version_id", versions)
        if given.get("external_id"):
            keys = [key_of(given["external_id"], ""), ""]
            queryset = queryset.filter(version__in=list(versions.values_list("pk", flat=True)), key__in=keys)
        filtered: TaskQuerySet = super().filter_queryset(queryset)
        return filtered

    def filter_tag(self, queryset: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        return queryset.tagged(value)


class TaskViewSet(RowViewSet):
    queryset = Task.objects.ready().select_related("dataset", "version")
    filterset_class = TaskFilter
    ordering = "id"
    orders = {"index": Sort(F("index"), "index")}
    permissions = {
        "list": Permission.READ_TASKS,
        "retrieve": Permission.READ_TASKS,
        "partial_update": Permission.UPLOAD,
        "mark": Permission.UPLOAD,
    }

    def get_queryset(self) -> Any:
        # Rows can be megabytes each, so lists leave them out.
        return super().get_queryset().defer("row_json") if self.action == "list" else super().get_queryset()

    def expect(self, request: Request, sort: Sort) -> tuple[bool, bool]:
        """Sort by index only within one version, because the database index orders each version by itself."""
        missing = [name for name in ("dataset", "version") if not request.query_params.get(name)]
        if missing:
            also = " and ".join(missing)
            raise bad_query("ordering", f"Ordering by index needs one version: also give {also}.")
        return True, False

    def get_serializer_class(self) -> type[TaskSerializer]:
        return TaskSerializer if self.action == "list" else TaskWithRowSerializer

    @extend_schema(request=MarkSerializer, responses=TaskWithRowSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a task's split or tags, or retire it. Its row never changes."""
        task = self.get_object()
        wanted = self.read_body(MarkSerializer, context={"shown": TaskWithRowSerializer(task).data})
        mark_tasks(task_ids=[task.pk], **wanted, user=self.user)
        return Response(TaskWithRowSerializer(self.get_object()).data)

    @operation(detail=False, request=MarkManySerializer, responses=MarkedSerializer)
    def mark(self, request: Request) -> Response:
        """Mark up to 1,000 tasks. Unknown tasks are ignored."""
        given = self.read_body(MarkManySerializer)
        return Response({"marked": mark_tasks(task_ids=given.pop("tasks"), **given, user=self.user)})
