"""Exports: files for trainers, with their manifests."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import django_filters
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import Problem
from apps.api.framework.query_filters import IdFilter
from apps.api.framework.spec_serializers import spec_serializer
from apps.exports.cancellation import cancel_export
from apps.exports.export_deletion import delete_export
from apps.exports.export_filters import filters_of
from apps.exports.export_folders import names_in, rows_path
from apps.exports.export_orders import ExportOrder, prepare_export, queue_export
from apps.exports.export_preview import preview_rows
from apps.exports.models import Encoding, Export
from apps.exports.ranged_downloads import stream_file
from apps.gym.exporters.protocol import Format
from apps.gym.exporters.registry import FORMATS

_FORMATS = [(format.slug, format.title) for format in FORMATS.values()]


class ExportFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    split = serializers.CharField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    longest_row_bytes = serializers.IntegerField()


FILES = {(200, kind): OpenApiTypes.BINARY for kind in ("application/x-ndjson", "application/octet-stream")}


class ExportSerializer(serializers.ModelSerializer[Export]):
    filters = serializers.DictField(read_only=True)
    options = serializers.DictField(read_only=True)
    files = ExportFileSerializer(
        many=True, read_only=True, help_text="Of rows: none where no row was left, which is `ready` as well."
    )
    beside = serializers.SerializerMethodField(help_text="Names of the other files of its folder, such as its card.")

    class Meta:
        model = Export
        fields = [
            "id",
            "format",
            "collection",
            "pair_set",
            "filters",
            "options",
            "encoding",
            "validation_share",
            "split_seed",
            "state",
            "total",
            "considered",
            "files",
            "beside",
            "rows",
            "bytes",
            "sha256",
            "message",
            "created_at",
        ]

    def get_beside(self, export: Export) -> list[str]:
        rows = {one["name"] for one in export.files}
        return [name for name in names_in(export) if name not in rows] if export.state == Export.State.READY else []


@spec_serializer(ExportOrder)
class OrderSerializer(DeclaredFields, serializers.Serializer[Any]):
    format = serializers.ChoiceField(choices=_FORMATS)
    encoding = serializers.ChoiceField(choices=Encoding.choices, required=False, help_text="Default: the format's own.")


class ExportPreviewOrderSerializer(OrderSerializer):
    limit = serializers.IntegerField(required=False, min_value=1, max_value=50)


class ExportPreviewSerializer(serializers.Serializer[Any]):
    rows = serializers.ListField(child=serializers.DictField())
    bytes = serializers.ListField(child=serializers.IntegerField(), help_text="Of each row, as JSON.")
    tokens = serializers.ListField(child=serializers.IntegerField(), help_text="Of each row.")
    tokens_from = serializers.ListField(
        child=serializers.ChoiceField(choices=["ids", "usage", "size"]),
        help_text="How each is known. `ids`: the row holds them. `usage`: the policy model told what it read and wrote "
        "in the last call, of a pair that of the longer side. `size`: a guess, of four bytes a token.",
    )
    considered = serializers.IntegerField(help_text="Looked at: `written_from`, and all that is dropped.")
    written_from = serializers.IntegerField(help_text="Attempts, pairs or tasks that become rows.")
    written = serializers.IntegerField(help_text="Rows that come of them, shown here or not.")
    dropped = serializers.DictField(child=serializers.IntegerField())
    stopped_after = serializers.FloatField(
        allow_null=True,
        help_text="Seconds after which it was looked no further; null where the counts are those of the whole export.",
    )


class FormatSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    title = serializers.CharField()
    trainer = serializers.CharField()
    makes = serializers.CharField(help_text="demonstrations, preferences, labels, tasks or scored.")
    note = serializers.CharField(help_text="What the trainer's loss covers, and the trap that people fall into.")
    encodings = serializers.ListField(child=serializers.CharField(), help_text="The first is the default.")
    options = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Values of each; the first is its default",
    )
    refused = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="Values that the trainer would corrupt, by option, with the reason.",
    )
    filters = serializers.ListField(child=serializers.CharField())


class ExportFilter(django_filters.FilterSet):
    format = django_filters.ChoiceFilter(choices=_FORMATS)
    state = django_filters.ChoiceFilter(choices=Export.State.choices)
    collection = IdFilter("collection")

    class Meta:
        model = Export
        fields: list[str] = []


class ExportViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Export.objects.all()
    serializer_class = ExportSerializer
    filterset_class = ExportFilter
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.EXPORT,
        "formats": Permission.READ,
        "preview": Permission.EXPORT,
        "download": Permission.EXPORT,
        "file": Permission.EXPORT,
        "manifest": Permission.EXPORT,
        "cancel": Permission.EXPORT,
        "destroy": Permission.EXPORT,
    }

    problems = {"download": {409, 410, 416}, "file": {409, 410, 416}, "cancel": {409}, "destroy": {409}}

    @extend_schema(request=OrderSerializer, responses={201: ExportSerializer})
    def create(self, request: Request) -> Response:
        """Queue an export: a worker writes its files, and `state` says when they are ready."""
        order = OrderSerializer(data=request.data)
        order.is_valid(raise_exception=True)
        export = queue_export(ExportOrder(**order.validated_data), user=self.person)
        return Response(ExportSerializer(export).data, status=HTTPStatus.CREATED)

    @extend_schema(request=None, responses=ExportSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Stop writing it: its writer keeps nothing of it."""
        return Response(ExportSerializer(cancel_export(export=self.get_object(), user=self.person)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the export and its files."""
        delete_export(export=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(responses=FormatSerializer(many=True), filters=False)
    @action(detail=False, pagination_class=None)
    def formats(self, request: Request) -> Response:
        """The formats, with the options and filters that each has, and what it refuses and why."""
        return Response([_described(format) for format in FORMATS.values()])

    @extend_schema(request=ExportPreviewOrderSerializer, responses=ExportPreviewSerializer)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """The first rows as an export would write them; nothing is written or stored."""
        order = ExportPreviewOrderSerializer(data=request.data)
        order.is_valid(raise_exception=True)
        limit = order.validated_data.pop("limit", 5)
        preview = preview_rows(prepare_export(ExportOrder(**order.validated_data)), limit=limit)
        return Response(ExportPreviewSerializer(preview).data)

    @extend_schema(responses=FILES)
    @action(detail=True)
    def download(self, request: Request, pk: str) -> HttpResponseBase:
        """The first file of rows, of which `bytes` and `sha256` are; takes Range and If-None-Match."""
        export = self._ready()
        if not export.files and not export.rows:
            raise Problem(HTTPStatus.CONFLICT, "no-rows", "This export has no rows, so there is no file of them.")
        return self._send(export, rows_path(export, export.files[0]["name"] if export.files else ""))

    @extend_schema(
        operation_id="exports_file",
        parameters=[OpenApiParameter("name", str, OpenApiParameter.PATH)],
        responses=FILES,
    )
    @action(detail=True, url_path="files/(?P<name>[A-Za-z0-9._-]+)")
    def file(self, request: Request, pk: str, name: str) -> HttpResponseBase:
        """One file by name: of rows, the dataset card, or what the trainer wants beside them."""
        export = self._ready()
        folder = Path(export.path)
        if name not in names_in(export):
            raise NotFound(f"This export has no file {name}: {', '.join(names_in(export))}.")
        return self._send(export, rows_path(export, name) if folder.is_file() else folder / name)

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True)
    def manifest(self, request: Request, pk: str) -> Response:
        """What the files hold and why rows were left out."""
        manifest: dict[str, Any] = self.get_object().manifest
        return Response(manifest)

    def _ready(self) -> Export:
        export: Export = self.get_object()
        if export.state != Export.State.READY:
            raise Problem(HTTPStatus.CONFLICT, "not-ready", f"This export is {export.get_state_display()}.")
        return export

    def _send(self, export: Export, path: Path) -> HttpResponseBase:
        if not path.is_file():
            raise Problem(HTTPStatus.GONE, "file-gone", "The file of this export is no longer on the server.")
        known = {one["name"]: one["sha256"] for one in export.files}
        digest = known.get(path.name, export.sha256 if Path(export.path) == path else "")
        kind = "application/x-ndjson" if path.name.endswith(".jsonl") else "application/octet-stream"
        return stream_file(self.request._request, path, filename=path.name, content_type=kind, sha256=digest)


def _described(format: Format) -> dict[str, Any]:
    refused: dict[str, dict[str, str]] = {}
    for (name, value), reason in format.refused.items():
        refused.setdefault(name, {})[value] = reason
    return {
        "slug": format.slug,
        "title": format.title,
        "trainer": format.trainer,
        "makes": format.makes,
        "note": format.note,
        "encodings": list(format.encodings),
        "options": {name: list(values) for name, values in format.choices.items()},
        "refused": refused,
        "filters": sorted(filters_of(format)),
    }
