"""Uploads: files on their way into a dataset."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import django_filters
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import Problem, bad_query
from apps.api.framework.query_filters import SlugFilter, filter_set, read_integer
from apps.api.framework.record_serializers import record_serializer
from apps.api.framework.request_bodies import RAW_PARSERS, open_part
from apps.api.framework.spec_serializers import spec_serializer
from apps.api.framework.upload_options import Options
from apps.exports.ranged_downloads import stream_file
from apps.gym.specs import spec_fields
from apps.tasks.models import Upload
from apps.tasks.received_files import append_part, finish_parts
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.row_preview import Preview, PreviewRow, preview_upload
from apps.tasks.upload_choices import Choices, choices_of
from apps.tasks.upload_jobs import discard_upload, explain_wait, load_now, queue_upload


class LineErrorSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="Line, or row of a file without lines, from 1.")
    pointer = serializers.CharField(help_text="JSON Pointer into the row (RFC 6901); empty for the whole row.")
    code = serializers.CharField()
    message = serializers.CharField()


class UploadSerializer(serializers.ModelSerializer[Upload]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True, allow_null=True, default=None)
    # `errors` is a property of every serializer, and a column here.
    message = serializers.SerializerMethodField(
        help_text="Why the upload failed or is waiting (for example for disk space), or warnings about the loaded file."
    )
    errors = LineErrorSerializer(many=True, read_only=True, help_text="The first invalid rows.")  # type: ignore[assignment]

    class Meta:
        model = Upload
        fields = [
            "id",
            "dataset",
            "version",
            "state",
            "on_error",
            "mode",
            "on_duplicate",
            "on_credential",
            "mapping",
            "split",
            "split_ratios",
            "split_seed",
            "note",
            "check_only",
            "filename",
            "format",
            "packing",
            "shape",
            "received_bytes",
            "read_bytes",
            "lines",
            "accepted",
            "rejected",
            "counts",
            "errors",
            "over_limit",
            "message",
            "created_at",
        ]

    def get_message(self, upload: Upload) -> str:
        return explain_wait(upload)


WAIT = OpenApiParameter(
    "wait", bool, description="Load before the response (201) instead of in a worker (202).", default=False
)


def answer_upload(upload: Upload, *, wait: bool = False) -> Response:
    """Return 202 if a worker will load the upload, 201 if it is loaded, else a problem with the first bad lines.

    With `wait`, a queued upload is loaded first.
    """
    upload = load_now(upload=upload) if wait else upload
    if upload.state in {Upload.State.READY, Upload.State.CHECKED}:
        return Response(UploadSerializer(upload).data, status=HTTPStatus.CREATED)
    if upload.state in {Upload.State.QUEUED, Upload.State.DRAFT, Upload.State.LOADING}:
        address = {"Location": f"/api/v1/uploads/{upload.pk}/"}
        return Response(UploadSerializer(upload).data, status=HTTPStatus.ACCEPTED, headers=address)
    limit = {"limit": upload.over_limit} if upload.over_limit else {}
    raise Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE if upload.over_limit else HTTPStatus.BAD_REQUEST,
        "too-large" if upload.over_limit else "rejected-file",
        upload.message or "The file was rejected.",
        errors=upload.errors,
        upload=upload.pk,
        state=upload.state,
        accepted=upload.accepted,
        rejected=upload.rejected,
        **limit,
    )


class MappingField(serializers.JSONField):
    """A mapping, or the slug of a saved one."""

    def to_internal_value(self, data: Any) -> Any:
        if data is not None and not isinstance(data, dict | str):
            raise serializers.ValidationError("Give an object, or the slug of a saved mapping.")
        return data


_CHOSEN = [name for name in spec_fields(Choices) if name not in {"mapping", "check_only"}]


@spec_serializer(Choices, *_CHOSEN, partial=True)
class ChoicesSerializer(DeclaredFields, serializers.Serializer[Any]):
    """How to load a file. Fields without a value keep the upload's options."""

    mapping = MappingField(required=False, allow_null=True, help_text="A mapping, or the slug of a saved one.")


@record_serializer(
    PreviewRow,
    row="The task row, with suspected credentials masked; null if it was rejected.",
    has_credentials="Whether the row has suspected credentials.",
)
class PreviewRowSerializer(serializers.Serializer[Any]):
    error = LineErrorSerializer(allow_null=True)


@record_serializer(
    Preview,
    problem="Why the file cannot be read further; empty if it can.",
    notes="Warnings: columns that look like a prompt or an answer but are not mapped, and columns that are dropped.",
)
class PreviewSerializer(serializers.Serializer[Any]):
    rows = PreviewRowSerializer(many=True)


class UploadViewSet(DestroyModelMixin, RowViewSet):
    noun = "upload"
    queryset = Upload.objects.select_related("dataset", "version")
    serializer_class = UploadSerializer
    filterset_class = filter_set(
        dataset=SlugFilter("dataset"), state=django_filters.ChoiceFilter(choices=Upload.State.choices)
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve", "preview", "rejected"], Permission.READ_TASKS),
        **dict.fromkeys(["parts", "finish", "check", "commit", "destroy"], Permission.UPLOAD),
    }
    problems = {
        "finish": {413},
        "preview": {409, 413},
        "rejected": {416},
    }

    @operation(
        "put",
        parser_classes=RAW_PARSERS,
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=UploadSerializer,
        parameters=[OpenApiParameter("offset", int, required=True, description="Bytes received before this part.")],
    )
    def parts(self, request: Request, pk: str) -> Response:
        """Append one part of at most 8 MB. Sending the last part again changes nothing."""
        upload = self.get_object()
        message = "Give the number of bytes received before this part."
        offset = read_integer(request, "offset", high=10**15 - 1, message=message)
        if offset is None:
            raise bad_query("offset", message)
        upload = append_part(upload=upload, offset=offset, stream=open_part(request))
        return Response(UploadSerializer(upload).data)

    @operation(responses={202: UploadSerializer, 201: UploadSerializer}, parameters=[WAIT])
    def finish(self, request: Request, pk: str) -> Response:
        """Finish an upload in parts and load the file."""
        wait = Options(request.query_params.dict(), {}).flag("wait")
        return answer_upload(finish_parts(upload=self.get_object()), wait=wait)

    @operation(request=ChoicesSerializer, responses={202: UploadSerializer})
    def check(self, request: Request, pk: str) -> Response:
        """Validate all rows of an uploaded file. Stores nothing."""
        return answer_upload(self._queue(request, check_only=True))

    @operation(request=ChoicesSerializer, responses={202: UploadSerializer, 201: UploadSerializer}, parameters=[WAIT])
    def commit(self, request: Request, pk: str) -> Response:
        """Load an uploaded file that needs a mapping or was validated."""
        wait = Options(request.query_params.dict(), {}).flag("wait")
        return answer_upload(self._queue(request, check_only=False), wait=wait)

    def _queue(self, request: Request, *, check_only: bool) -> Upload:
        upload = self.get_object()
        choices = replace(choices_of(upload), **self.read_body(ChoicesSerializer), check_only=check_only)
        return queue_upload(upload=upload, choices=choices)

    @operation("get", responses=PreviewSerializer)
    def preview(self, request: Request, pk: str) -> Response:
        """Return the first rows of a file as tasks, with the given mapping."""
        return Response(PreviewSerializer(preview_upload(upload=self.get_object())).data)

    perform_destroy = row_deletion(discard_upload, "Discard an uploaded file that was not loaded.")

    @operation("get", responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY})
    def rejected(self, request: Request, pk: str) -> HttpResponseBase:
        """Download all bad lines with their reasons, as JSONL."""
        upload = self.get_object()
        path = rejected_path(upload)
        if path is None:
            raise NotFound("This upload has no invalid rows.")
        name = f"upload-{upload.pk}-rejected.jsonl"
        return stream_file(request._request, path, filename=name, content_type="application/x-ndjson")
