"""Versions of a dataset: what they are made of, what they changed, and their end."""

from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.datasets.dataset_deletion_viewsets import DeletionSerializer, accept_deletion
from apps.api.datasets.task_viewsets import TaskSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.file_answers import stream_rows
from apps.api.framework.problems import Problem, QueryProblem
from apps.gym.tasks.dataset_metrics import as_nemo_gym
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.models import Dataset, DatasetVersion
from apps.tasks.version_differences import KINDS, changed_fields, count_changes, find_changes, with_counterparts
from apps.tasks.version_rows import read_rows

NUMBER = r"versions/(?P<number>[0-9]{1,9})"


class VersionSerializer(serializers.ModelSerializer[DatasetVersion]):
    base = serializers.IntegerField(source="base.number", read_only=True, allow_null=True, default=None)
    changes = serializers.DictField(
        child=serializers.IntegerField(), help_text="Rows against those of the base: new, updated, unchanged, removed."
    )

    class Meta:
        model = DatasetVersion
        fields = ["number", "state", "task_count", "content_hash", "note", "base", "changes", "created_at"]


class ChangesSerializer(serializers.Serializer[Any]):
    old = serializers.IntegerField()
    new = serializers.IntegerField()
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()


class ChangedTaskSerializer(TaskSerializer):
    before = serializers.IntegerField(allow_null=True, help_text="The task of the old version that it replaces.")
    fields_changed = serializers.ListField(child=serializers.CharField(), help_text="Top-level fields that differ.")

    class Meta(TaskSerializer.Meta):
        fields = [*TaskSerializer.Meta.fields, "before", "fields_changed"]


class VersionActions(TableViewSet):
    """Routes under `/datasets/{slug}/versions/`."""

    def _version(self, number: str) -> DatasetVersion:
        dataset: Dataset = self.get_object()
        ready = dataset.versions.filter(state=DatasetVersion.State.READY).select_related("dataset", "base")
        version = ready.filter(number=int(number)).first()
        if version is None:
            raise NotFound(f"The dataset {dataset.slug} has no version {number}.")
        return version

    def _other(self, version: DatasetVersion, request: Request) -> DatasetVersion:
        wanted = request.query_params.get("from", "")
        if not wanted and version.base is not None and version.base.state == DatasetVersion.State.READY:
            return version.base
        if not wanted.isascii() or not wanted.isdigit() or len(wanted) > 9:
            message = "Give the number of the version to compare with: this one has no base that is still here."
            raise QueryProblem([{"pointer": "?from", "code": "invalid", "message": message}])
        return self._version(wanted)

    @extend_schema(responses=VersionSerializer(many=True), filters=False)
    @action(detail=True, filterset_class=None)
    def versions(self, request: Request, slug: str) -> Response:
        """The versions of the dataset, those too that are being loaded or deleted: `state` tells."""
        found = self.get_object().versions.select_related("base").defer("metrics", "base__metrics")
        page = self.paginate_queryset(found)
        return self.get_paginated_response(self.in_part(VersionSerializer(page, many=True)).data)

    @extend_schema(responses=VersionSerializer, filters=False)
    @action(detail=True, url_path=NUMBER, filterset_class=None)
    def version(self, request: Request, slug: str, number: str) -> Response:
        """One version."""
        return Response(VersionSerializer(self._version(number)).data)

    @extend_schema(responses={202: DeletionSerializer})
    @version.mapping.delete
    def delete_version(self, request: Request, slug: str, number: str) -> Response:
        """Delete one version with its tasks: a worker does it, and the answer's address tells how far it is."""
        version = self._version(number)
        return accept_deletion(queue_deletion(dataset=version.dataset, version=version, user=self.person))

    @extend_schema(
        responses=OpenApiTypes.OBJECT,
        filters=False,
        parameters=[OpenApiParameter("shape", str, enum=["full", "nemo_gym"], default="full")],
    )
    @action(detail=True, url_path=f"{NUMBER}/metrics", filterset_class=None)
    def metrics(self, request: Request, slug: str, number: str) -> Response:
        """What the rows are made of; as NeMo Gym writes it beside a dataset where `shape=nemo_gym`."""
        shape = request.query_params.get("shape", "full")
        if shape not in {"full", "nemo_gym"}:
            message = "Give full or nemo_gym."
            raise QueryProblem([{"pointer": "?shape", "code": "invalid", "message": message}])
        figures = self._version(number).metrics
        if figures is None:
            raise Problem(HTTPStatus.CONFLICT, "not-ready", "A worker has not measured this version yet.")
        return Response(as_nemo_gym(figures) if shape == "nemo_gym" else figures)

    @extend_schema(
        responses=ChangesSerializer,
        filters=False,
        parameters=[OpenApiParameter("from", int, description="The version before; by default this one's base.")],
    )
    @action(detail=True, url_path=f"{NUMBER}/changes", filterset_class=None)
    def changes(self, request: Request, slug: str, number: str) -> Response:
        """How many tasks were added, removed and changed since another version."""
        new = self._version(number)
        old = self._other(new, request)
        counts = {"old": old.number, "new": new.number, **count_changes(old=old, new=new)}
        return Response(ChangesSerializer(counts).data)

    @extend_schema(
        responses=ChangedTaskSerializer(many=True),
        filters=False,
        parameters=[
            OpenApiParameter("from", int, description="The version before; by default this one's base."),
            OpenApiParameter("kind", str, enum=KINDS, required=True),
        ],
    )
    @action(detail=True, url_path=f"{NUMBER}/changes/tasks", filterset_class=None)
    def changed_tasks(self, request: Request, slug: str, number: str) -> Response:
        """The tasks that were added, removed or changed since another version."""
        new = self._version(number)
        old = self._other(new, request)
        kind = request.query_params.get("kind", "")
        if kind not in KINDS:
            message = f"Give one of: {', '.join(KINDS)}."
            raise QueryProblem([{"pointer": "?kind", "code": "invalid", "message": message}])
        found: QuerySet[Any] = find_changes(old=old, new=new, kind=kind).select_related("dataset", "version")
        page: list[Any] = self.paginate_queryset(found) or []
        pairs: list[Any] = with_counterparts(page, old=old) if kind == "changed" else [(task, None) for task in page]
        for task, before in pairs:
            task.before = before.pk if before else None
            task.fields_changed = changed_fields(before.row_json, task.row_json) if before else []
        return self.get_paginated_response(self.in_part(ChangedTaskSerializer(page, many=True)).data)

    @extend_schema(responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY}, filters=False)
    @action(detail=True, url_path=f"{NUMBER}/rows", filterset_class=None)
    def rows(self, request: Request, slug: str, number: str) -> HttpResponseBase:
        """All rows of the version as they were uploaded, as JSONL. They never change: the ETag is `content_hash`, the
        SHA-256 of what is sent. Takes If-None-Match and no Range."""
        version = self._version(number)
        return stream_rows(
            request,
            read_rows(version=version),
            # Of versions from before there were hashes the number is as good: a version's rows never change.
            etag=f'"{version.content_hash or f"version-{version.pk}"}"',
            filename=f"{version.dataset.slug}-v{version.number}.jsonl",
            content_type="application/x-ndjson",
        )
