"""Versions of a dataset: statistics, changes and deletion."""

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

from apps.accounts.keyset_reading import one_by_one
from apps.api.datasets.task_viewsets import TaskSerializer
from apps.api.deletion_viewsets import DeletionSerializer, answer_deletion
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.file_answers import stream_rows
from apps.api.framework.problems import Problem, bad_query
from apps.api.framework.query_filters import read_choice, read_integer
from apps.gym.tasks.dataset_metrics import as_nemo_gym
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.gold_checks import check_again, read_check
from apps.tasks.models import Dataset, DatasetVersion
from apps.tasks.unchanged_rows import read_rows
from apps.tasks.version_differences import KINDS, changed_fields, count_changes, find_changes, with_counterparts

NUMBER = r"versions/(?P<number>[0-9]{1,9})"


class VersionSerializer(serializers.ModelSerializer[DatasetVersion]):
    base = serializers.IntegerField(source="base.number", read_only=True, allow_null=True, default=None)
    changes = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of new, updated, unchanged and removed rows against the base version.",
    )

    gold = serializers.SerializerMethodField(
        help_text="Rewards of the expected answers, scored by the tasks' own verifier. `full`, `less` and `unknown` "
        "count tasks, `near` those whose verifier also accepts a wrong copy of the expected answer, `texts` those "
        "whose expected answer is compared as text. `complete` is true after the last task. `first` lists tasks with "
        "less than full reward, `copies` those with an accepted copy, `unread` those compared as text, 20 of each at "
        "most."
    )

    class Meta:
        model = DatasetVersion
        fields = ["number", "state", "task_count", "content_hash", "note", "base", "changes", "gold", "created_at"]

    def get_gold(self, version: DatasetVersion) -> dict[str, Any]:
        return read_check(version)


class ChangesSerializer(serializers.Serializer[Any]):
    old = serializers.IntegerField()
    new = serializers.IntegerField()
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()


class ChangedTaskSerializer(TaskSerializer):
    before = serializers.IntegerField(allow_null=True, help_text="The task of the base version that it replaces.")
    fields_changed = serializers.ListField(child=serializers.CharField(), help_text="Differing top-level fields.")

    class Meta(TaskSerializer.Meta):
        fields = [*TaskSerializer.Meta.fields, "before", "fields_changed"]


class VersionActions(TableViewSet):
    """Routes under `/datasets/{slug}/versions/`."""

    def _version(self, number: str | int) -> DatasetVersion:
        dataset: Dataset = self.get_object()
        ready = dataset.versions.filter(state=DatasetVersion.State.READY).select_related("dataset", "base")
        version = ready.filter(number=int(number)).first()
        if version is None:
            raise NotFound(f"The dataset {dataset.slug} has no version {number}.")
        return version

    def _other(self, version: DatasetVersion, request: Request) -> DatasetVersion:
        message = "Give the version to compare with. The base of this version was deleted or never existed."
        wanted = read_integer(request, "from", high=10**9 - 1, message=message)
        if wanted is not None:
            return self._version(wanted)
        if version.base is None or version.base.state != DatasetVersion.State.READY:
            raise bad_query("from", message)
        return version.base

    @operation("get", filterset_class=None, responses=VersionSerializer(many=True), filters=False)
    def versions(self, request: Request, slug: str) -> Response:
        """List the versions of the dataset, including those being loaded or deleted (see `state`)."""
        found = self.get_object().versions.select_related("base").defer("metrics", "base__metrics")
        return self.answer_page(VersionSerializer, found)

    @extend_schema(responses=VersionSerializer, filters=False)
    @action(detail=True, url_path=NUMBER)
    def version(self, request: Request, slug: str, number: str) -> Response:
        """Return one version."""
        return Response(VersionSerializer(self._version(number)).data)

    @extend_schema(responses={202: DeletionSerializer})
    @version.mapping.delete
    def delete_version(self, request: Request, slug: str, number: str) -> Response:
        """Delete one version with its tasks.

        A worker deletes in the background. The list of deletions shows the progress.
        """
        version = self._version(number)
        return answer_deletion(queue_deletion(dataset=version.dataset, version=version, user=self.user))

    @operation(
        "get",
        url_path=f"{NUMBER}/metrics",
        responses=OpenApiTypes.OBJECT,
        parameters=[OpenApiParameter("shape", str, enum=["full", "nemo_gym"], default="full")],
    )
    def metrics(self, request: Request, slug: str, number: str) -> Response:
        """Return statistics of the rows. With `shape=nemo_gym`, in the format that NeMo Gym writes beside a dataset."""
        shape = read_choice(request, "shape", ["full", "nemo_gym"], default="full")
        figures = self._version(number).metrics
        if figures is None:
            raise Problem(HTTPStatus.CONFLICT, "not-ready", "The metrics of this version are not computed yet.")
        return Response(as_nemo_gym(figures) if shape == "nemo_gym" else figures)

    @operation(url_path=f"{NUMBER}/gold", responses={202: VersionSerializer})
    def check_gold(self, request: Request, slug: str, number: str) -> Response:
        """Score the expected answers of all tasks again, for example with a corrected verifier, in the background."""
        version = check_again(version=self._version(number), user=self.user)
        return Response(VersionSerializer(version).data, status=HTTPStatus.ACCEPTED)

    @operation(
        "get",
        url_path=f"{NUMBER}/changes",
        responses=ChangesSerializer,
        parameters=[OpenApiParameter("from", int, description="Version to compare with. Default: the base.")],
    )
    def changes(self, request: Request, slug: str, number: str) -> Response:
        """Return how many tasks were added, removed and changed since another version."""
        new = self._version(number)
        old = self._other(new, request)
        counts = {"old": old.number, "new": new.number, **count_changes(old=old, new=new)}
        return Response(ChangesSerializer(counts).data)

    @operation(
        "get",
        url_path=f"{NUMBER}/changes/tasks",
        filterset_class=None,
        responses=ChangedTaskSerializer(many=True),
        filters=False,
        parameters=[
            OpenApiParameter("from", int, description="Version to compare with. Default: the base."),
            OpenApiParameter("kind", str, enum=KINDS, required=True),
        ],
    )
    def changed_tasks(self, request: Request, slug: str, number: str) -> Response:
        """List the tasks that were added, removed or changed since another version."""
        new = self._version(number)
        old = self._other(new, request)
        kind = read_choice(request, "kind", KINDS, message=f"Choose one of: {', '.join(KINDS)}.")
        found: QuerySet[Any] = find_changes(old=old, new=new, kind=kind).select_related("dataset", "version")
        page: list[Any] = self.paginate_queryset(found) or []
        pairs: list[Any] = with_counterparts(page, old=old) if kind == "changed" else [(task, None) for task in page]
        for task, before in pairs:
            task.before = before.pk if before else None
            task.fields_changed = changed_fields(before.row_json, task.row_json) if before else []
        return self.get_paginated_response(self.select_fields(ChangedTaskSerializer(page, many=True)).data)

    @operation(
        "get",
        url_path=f"{NUMBER}/rows",
        responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY},
    )
    def rows(self, request: Request, slug: str, number: str) -> HttpResponseBase:
        """Return all rows of the version as uploaded, as JSONL.

        U+2028, U+2029 and U+0085 are escaped. The ETag is `content_hash`, the SHA-256 of the body without these
        escapes; it never changes. Supports If-None-Match, not Range.
        """
        version = self._version(number)
        return stream_rows(
            request,
            one_by_one(read_rows(version=version)),
            # Older versions without a hash use their id: the rows of a version never change.
            etag=f'"{version.content_hash or f"version-{version.pk}"}"',
            filename=f"{version.dataset.slug}-v{version.number}.jsonl",
            content_type="application/x-ndjson",
        )
