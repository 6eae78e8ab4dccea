"""Uploads: files on their way into a dataset."""

from dataclasses import replace
from http import HTTPStatus
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
from apps.api.framework.problems import Problem, QueryProblem
from apps.api.framework.query_filters import SlugFilter
from apps.api.framework.request_bodies import RAW_PARSERS, open_part
from apps.api.framework.spec_serializers import spec_serializer
from apps.api.framework.upload_options import Options
from apps.exports.ranged_downloads import stream_file
from apps.gym.specs import spec_fields
from apps.tasks.models import Upload
from apps.tasks.received_files import append_part, finish_parts
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.row_preview import preview_upload
from apps.tasks.upload_choices import Choices, choices_of
from apps.tasks.upload_jobs import discard_upload, explain_wait, load_now, queue_upload


class LineErrorSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="The line, or the row of a file without lines, from 1.")
    pointer = serializers.CharField(help_text="The place in the row (RFC 6901); empty for the row as a whole.")
    code = serializers.CharField()
    message = serializers.CharField()


class UploadSerializer(serializers.ModelSerializer[Upload]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True, allow_null=True, default=None)
    # `errors` is a property of every serializer, and here a column too.
    message = serializers.SerializerMethodField(
        help_text="Why the upload failed or is waiting (for example for disk space), or warnings about the loaded file."
    )
    errors = LineErrorSerializer(many=True, read_only=True, help_text="The first bad lines.")  # type: ignore[assignment]

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
    "wait", bool, description="Load before the answer (201) instead of leaving it to a worker (202).", default=False
)


def answer_upload(upload: Upload, *, wait: bool = False) -> Response:
    """Answer 202 if a worker will load the upload, 201 if it is loaded, else a problem with the first bad lines.

    With `wait`, a waiting upload is loaded first.
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
    """How to load a file. Fields without a value keep the choice of the upload."""

    mapping = MappingField(required=False, allow_null=True, help_text="A mapping, or the slug of a saved one.")


class PreviewRowSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    row = serializers.DictField(allow_null=True, help_text="The task's row; null where it was refused.")
    external_id = serializers.CharField()
    prompt = serializers.CharField()
    split = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    error = LineErrorSerializer(allow_null=True)


class PreviewSerializer(serializers.Serializer[Any]):
    format = serializers.CharField()
    packing = serializers.CharField()
    shape = serializers.CharField()
    mapping = serializers.DictField(allow_null=True)
    columns = serializers.ListField(child=serializers.DictField())
    rows = PreviewRowSerializer(many=True)
    problem = serializers.CharField(help_text="Why the file cannot be read (any further), or nothing.")
    notes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Of a mapping that was found: columns that are named like a part of the prompt or like an answer, "
        "and are neither.",
    )


class UploadFilter(django_filters.FilterSet):
    dataset = SlugFilter("dataset")
    state = django_filters.ChoiceFilter(choices=Upload.State.choices)

    class Meta:
        model = Upload
        fields: list[str] = []


class UploadViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Upload.objects.select_related("dataset", "version")
    serializer_class = UploadSerializer
    filterset_class = UploadFilter
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ_TASKS,
        "retrieve": Permission.READ_TASKS,
        "parts": Permission.UPLOAD,
        "finish": Permission.UPLOAD,
        "check": Permission.UPLOAD,
        "commit": Permission.UPLOAD,
        "preview": Permission.READ_TASKS,
        "rejected": Permission.READ_TASKS,
        "destroy": Permission.UPLOAD,
    }
    problems = {
        "finish": {413},
        "preview": {409, 413},
        "rejected": {416},
    }
    query_parameters = {"parts": frozenset({"offset"}), "finish": frozenset({"wait"}), "commit": frozenset({"wait"})}

    @extend_schema(
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=UploadSerializer,
        parameters=[OpenApiParameter("offset", int, required=True, description="Bytes received before this part.")],
    )
    @action(detail=True, methods=["put"], parser_classes=RAW_PARSERS)
    def parts(self, request: Request, pk: str) -> Response:
        """Append one part of at most 8 MB. Sending the last part again changes nothing."""
        upload = self.get_object()
        offset = request.query_params.get("offset", "")
        if not offset.isascii() or not offset.isdigit() or len(offset) > 15:
            message = "Give the number of bytes received before this part."
            raise QueryProblem([{"pointer": "?offset", "code": "invalid", "message": message}])
        upload = append_part(upload=upload, offset=int(offset), stream=open_part(request))
        return Response(UploadSerializer(upload).data)

    @extend_schema(request=None, responses={202: UploadSerializer, 201: UploadSerializer}, parameters=[WAIT])
    @action(detail=True, methods=["post"])
    def finish(self, request: Request, pk: str) -> Response:
        """All parts are there: load what they make."""
        wait = Options(request.query_params.dict(), {}).flag("wait")
        return answer_upload(finish_parts(upload=self.get_object()), wait=wait)

    @extend_schema(request=ChoicesSerializer, responses={202: UploadSerializer})
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str) -> Response:
        """Read all of a file that waits for its mapping, or was checked before; count and store nothing."""
        return answer_upload(self._queue(request, check_only=True))

    @extend_schema(
        request=ChoicesSerializer, responses={202: UploadSerializer, 201: UploadSerializer}, parameters=[WAIT]
    )
    @action(detail=True, methods=["post"])
    def commit(self, request: Request, pk: str) -> Response:
        """Load a file that waits for its mapping or was checked."""
        wait = Options(request.query_params.dict(), {}).flag("wait")
        return answer_upload(self._queue(request, check_only=False), wait=wait)

    def _queue(self, request: Request, *, check_only: bool) -> Upload:
        upload = self.get_object()
        wanted = ChoicesSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        choices = replace(choices_of(upload), **wanted.validated_data, check_only=check_only)
        return queue_upload(upload=upload, choices=choices)

    @extend_schema(responses=PreviewSerializer)
    @action(detail=True)
    def preview(self, request: Request, pk: str) -> Response:
        """The first rows of a file that is not loaded yet, as the tasks that its mapping makes of them."""
        return Response(PreviewSerializer(preview_upload(upload=self.get_object())).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Forget a file that nobody loaded."""
        discard_upload(upload=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY})
    @action(detail=True)
    def rejected(self, request: Request, pk: str) -> HttpResponseBase:
        """All bad lines with their reasons, as JSONL."""
        upload = self.get_object()
        path = rejected_path(upload)
        if path is None:
            raise NotFound("No line of this upload was rejected.")
        name = f"upload-{upload.pk}-rejected.jsonl"
        return stream_file(request._request, path, filename=name, content_type="application/x-ndjson")
