"""Uploads: files on their way into a dataset."""

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
from apps.api.bodies import RAW_PARSERS, open_part
from apps.api.filters import SlugFilter
from apps.api.problems import Problem, QueryProblem
from apps.api.viewsets import TableViewSet
from apps.exports.downloading import stream_file
from apps.tasks.models import Upload
from apps.tasks.uploading import append_part, finish_parts, rejected_path


class LineErrorSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class UploadSerializer(serializers.ModelSerializer[Upload]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True, allow_null=True, default=None)
    # `errors` is a property of every serializer, and here a column too.
    errors = LineErrorSerializer(many=True, read_only=True, help_text="The first bad lines.")  # type: ignore[assignment]

    class Meta:
        model = Upload
        fields = [
            "id",
            "dataset",
            "version",
            "state",
            "on_error",
            "filename",
            "received_bytes",
            "lines",
            "accepted",
            "rejected",
            "errors",
            "message",
            "created_at",
        ]


def answer_upload(upload: Upload) -> Response:
    """201 with the upload, or a problem that lists the first bad lines."""
    if upload.state == Upload.State.READY:
        return Response(UploadSerializer(upload).data, status=HTTPStatus.CREATED)
    raise Problem(
        HTTPStatus.BAD_REQUEST,
        "rejected-file",
        upload.message or "The file was rejected.",
        errors=upload.errors,
        upload=upload.pk,
        state=upload.state,
        accepted=upload.accepted,
        rejected=upload.rejected,
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
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "parts": Permission.UPLOAD,
        "finish": Permission.UPLOAD,
        "rejected": Permission.READ,
    }
    query_parameters = {"parts": frozenset({"offset"})}

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

    @extend_schema(request=None, responses={201: UploadSerializer})
    @action(detail=True, methods=["post"])
    def finish(self, request: Request, pk: str) -> Response:
        """Load what the parts make."""
        return answer_upload(finish_parts(upload=self.get_object()))

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
