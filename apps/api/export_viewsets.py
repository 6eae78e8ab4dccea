"""Exports: files for trainers, with their manifests."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import django_filters
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import Problem
from apps.api.framework.query_filters import FlagFilter, IdFilter, WordsFilter, filter_set
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.api.framework.trainability_serializers import TrainabilitySerializer
from apps.exports.export_deletion import cancel_export, delete_export
from apps.exports.export_filters import filters_of
from apps.exports.export_folders import names_in, rows_path
from apps.exports.export_orders import ExportOrder, prepare_export, queue_export
from apps.exports.export_preview import Preview, check_template, preview_rows
from apps.exports.export_search import search_exports
from apps.exports.exported_credentials import warn_of_credentials
from apps.exports.manifests import with_staleness
from apps.exports.models import Encoding, Export
from apps.exports.ranged_downloads import stream_file
from apps.gym.chat_templates.template_findings import TemplateReport
from apps.gym.exporters.protocol import Format
from apps.gym.exporters.registry import FORMATS

_FORMATS = [(format.slug, format.title) for format in FORMATS.values()]


TemplateReportSerializer = make_serializer(
    "TemplateReport",
    TemplateReport,
    sha256="Hash of the template.",
    rows="Rows that were checked, `dropped` ones included.",
    shapes="Different shapes of rows, by roles, calls, kinds of values and features of tool schemas.",
    rendered="Rows that were rendered themselves; the others have the shape of a rendered row.",
    deviating="Rendered rows that differ from the first row of their shape.",
    unchecked="Rows without a verdict, because the check was stopped.",
    dropped="Rows that the export leaves out because of the template.",
    findings="What the template does, the gravest first.",
    form="Options of the format with which the template loses less; null if none were found.",
    stopped="Why the check did not cover all rows; empty otherwise.",
)


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
        many=True, read_only=True, help_text="Number of rows. A `ready` export can have 0 rows."
    )
    credentials = serializers.SerializerMethodField(
        help_text="Warning about suspected credentials in the rows; empty if there are none."
    )
    template_check = serializers.SerializerMethodField(
        help_text="What the chat template does to the rows; null without a template, and before the export is ready."
    )
    beside = serializers.SerializerMethodField(help_text="Other files in the folder, for example the dataset card.")

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
            "mask_credentials",
            "template_check",
            "not_checked",
            "state",
            "total",
            "considered",
            "files",
            "beside",
            "rows",
            "bytes",
            "sha256",
            "message",
            "stale_at",
            "stale_reason",
            "credentials",
            "created_at",
        ]

    def get_credentials(self, export: Export) -> str:
        return warn_of_credentials(export.manifest.get("credentials", {}))

    @extend_schema_field(TemplateReportSerializer(allow_null=True))
    def get_template_check(self, export: Export) -> dict[str, Any] | None:
        found: dict[str, Any] | None = export.manifest.get("template_check")
        return found

    def get_beside(self, export: Export) -> list[str]:
        rows = {one["name"] for one in export.files}
        return [name for name in names_in(export) if name not in rows] if export.state == Export.State.READY else []


@spec_serializer(ExportOrder)
class OrderSerializer(DeclaredFields, serializers.Serializer[Any]):
    format = serializers.ChoiceField(choices=_FORMATS)
    encoding = serializers.ChoiceField(
        choices=Encoding.choices, required=False, help_text="Default: set by the format."
    )


class ExportPreviewOrderSerializer(OrderSerializer):
    limit = serializers.IntegerField(required=False, min_value=1, max_value=50)


@record_serializer(
    Preview,
    bytes="Size of each row as JSON, in bytes.",
    tokens="Tokens of each row.",
    tokens_from="Source of each count. `ids`: token IDs in the row. `usage`: token counts of the last model call (of "
    "a pair, of the longer side). `size`: an estimate of four bytes per token.",
    considered="Attempts, pairs or tasks checked: `written_from` plus all dropped.",
    written_from="Attempts, pairs or tasks that become rows.",
    credentials="Warning about suspected credentials in the rows; empty if there are none.",
    written="Rows of the full export.",
    not_checked="Content that no template check covers, with the reason; empty if it covers all.",
    stopped_after="Seconds after which the preview stopped; null if the counts are complete.",
)
class ExportPreviewSerializer(serializers.Serializer[Any]):
    """The first rows of an export, and its counts."""

    trainability = TrainabilitySerializer()
    template_check = TemplateReportSerializer(
        allow_null=True, help_text="What the chat template does to the rows; null without a template."
    )


@spec_serializer(ExportOrder, "tokenizer", "template", "every_row")
class TemplateCheckSerializer(DeclaredFields, serializers.Serializer[Any]):
    seconds = serializers.IntegerField(
        min_value=1,
        max_value=50,
        default=20,
        help_text="Time limit. Larger exports are checked while they are written.",
    )


class FormatSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    title = serializers.CharField()
    trainer = serializers.CharField()
    makes = serializers.CharField(help_text="demonstrations, preferences, labels, tasks or scored.")
    note = serializers.CharField(help_text="What the loss of the trainer covers, and common mistakes.")
    encodings = serializers.ListField(child=serializers.CharField(), help_text="The first is the default.")
    options = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Values of each option; the first is the default",
    )
    refused = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="Values that the trainer would load incorrectly, by option, with the reason.",
    )
    filters = serializers.ListField(child=serializers.CharField())


class ExportViewSet(DestroyModelMixin, RowViewSet):
    noun = "export"
    queryset = Export.objects.all()
    serializer_class = ExportSerializer
    filterset_class = filter_set(
        q=WordsFilter(
            search_exports,
            "Only exports that have each of these words in the format, the encoding, the creator, or the name of the "
            "collection, dataset or pair set.",
        ),
        format=django_filters.ChoiceFilter(choices=_FORMATS),
        state=django_filters.ChoiceFilter(choices=Export.State.choices),
        fresh=FlagFilter("stale_at", lookup_expr="isnull", label="True: exports that no recheck has made stale."),
        collection=IdFilter("collection"),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve", "formats"], Permission.READ),
        **dict.fromkeys(
            ["create", "preview", "download", "file", "manifest", "check_template", "cancel", "destroy"],
            Permission.EXPORT,
        ),
    }

    problems = {"download": {409, 410, 416}, "file": {409, 410, 416}}

    @extend_schema(request=OrderSerializer, responses={201: ExportSerializer})
    def create(self, request: Request) -> Response:
        """Queue an export. A worker writes its files; `state` is `ready` when they are complete."""
        export = queue_export(ExportOrder(**self.read_body(OrderSerializer)), user=self.user)
        return Response(ExportSerializer(export).data, status=HTTPStatus.CREATED)

    cancel = row_action("cancel", cancel_export, "Cancel the export and discard its files.")
    perform_destroy = row_deletion(delete_export, "Delete the export and its files.")

    @operation("get", detail=False, pagination_class=None, responses=FormatSerializer(many=True), filters=False)
    def formats(self, request: Request) -> Response:
        """List the formats with their options and filters, and the values that each rejects, with reasons."""
        return Response([_described(format) for format in FORMATS.values()])

    @operation(detail=False, request=ExportPreviewOrderSerializer, responses=ExportPreviewSerializer)
    def preview(self, request: Request) -> Response:
        """Return the first rows of an export. Writes and stores nothing."""
        order = self.read_body(ExportPreviewOrderSerializer)
        limit = order.pop("limit", 5)
        preview = preview_rows(prepare_export(ExportOrder(**order)), limit=limit)
        return Response(ExportPreviewSerializer(preview).data)

    @operation(
        url_path="check-template",
        operation_id="exports_check_template",
        request=TemplateCheckSerializer,
        responses=TemplateReportSerializer,
    )
    def check_template(self, request: Request, pk: str) -> Response:
        """Check what a chat template renders of the rows. Changes nothing.

        The rows are made again from the current rollouts.
        """
        order = self.read_body(TemplateCheckSerializer)
        return Response(TemplateReportSerializer(check_template(self.get_object(), **order)).data)

    @operation("get", responses=FILES)
    def download(self, request: Request, pk: str) -> HttpResponseBase:
        """Download the first file of rows, which `bytes` and `sha256` describe. Supports Range and If-None-Match."""
        export = self._ready()
        if not export.files and not export.rows:
            raise Problem(HTTPStatus.CONFLICT, "no-rows", "This export has no rows, so it has no file.")
        return self._send(export, rows_path(export, export.files[0]["name"] if export.files else ""))

    @operation(
        "get",
        url_path="files/(?P<name>[A-Za-z0-9._-]+)",
        operation_id="exports_file",
        parameters=[OpenApiParameter("name", str, OpenApiParameter.PATH)],
        responses=FILES,
    )
    def file(self, request: Request, pk: str, name: str) -> HttpResponseBase:
        """Download one file by name: rows, the dataset card, or other files for the trainer."""
        export = self._ready()
        folder = Path(export.path)
        if name not in names_in(export):
            raise NotFound(f"This export has no file {name}: {', '.join(names_in(export))}.")
        return self._send(export, rows_path(export, name) if folder.is_file() else folder / name)

    @operation("get", responses=OpenApiTypes.OBJECT)
    def manifest(self, request: Request, pk: str) -> Response:
        """Return the content of the files, and why rows were left out.

        `stale` is set, with time and reason, if a recheck changed rollouts of the export. The file on disk lacks it.
        """
        export: Export = self.get_object()
        return Response(with_staleness(export))

    def _ready(self) -> Export:
        export: Export = self.get_object()
        if export.state != Export.State.READY:
            raise Problem(
                HTTPStatus.CONFLICT, "not-ready", f"This export is {export.get_state_display()}, so it has no file."
            )
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
        "makes": format.row_kind,
        "note": format.note,
        "encodings": list(format.encodings),
        "options": {name: list(values) for name, values in format.choices.items()},
        "refused": refused,
        "filters": sorted(filters_of(format)),
    }
