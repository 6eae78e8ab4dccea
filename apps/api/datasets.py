"""Datasets: versioned collections of tasks."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.bodies import FILE_PARSERS, open_body
from apps.api.declared import DeclaredFields
from apps.api.filters import SlugFilter
from apps.api.problems import QueryProblem
from apps.api.uploads import UploadSerializer, answer_upload
from apps.api.viewsets import SLUG, TableViewSet
from apps.environments.models import Environment
from apps.tasks.models import Dataset, DatasetVersion, Upload
from apps.tasks.uploading import create_dataset, start_parts, upload_file


class VersionSerializer(serializers.ModelSerializer[DatasetVersion]):
    class Meta:
        model = DatasetVersion
        fields = ["number", "state", "task_count", "content_hash", "note", "created_at"]


class DatasetSerializer(DeclaredFields, serializers.ModelSerializer[Dataset]):
    environment = serializers.SlugRelatedField(slug_field="slug", queryset=Environment.objects.all())
    versions = VersionSerializer(many=True, read_only=True)

    class Meta:
        model = Dataset
        fields = ["id", "slug", "name", "description", "environment", "versions", "created_at"]


class PartsSerializer(DeclaredFields, serializers.Serializer[Any]):
    filename = serializers.CharField(max_length=255, default="rows.jsonl")
    on_error = serializers.ChoiceField(choices=Upload.OnError.choices, default=Upload.OnError.REJECT)


class DatasetFilter(django_filters.FilterSet):
    environment = SlugFilter("environment")
    name = django_filters.CharFilter(field_name="name", lookup_expr="icontains")

    class Meta:
        model = Dataset
        fields: list[str] = []


class DatasetViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Dataset.objects.select_related("environment").prefetch_related("versions")
    serializer_class = DatasetSerializer
    filterset_class = DatasetFilter
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.UPLOAD,
        "uploads": Permission.READ,
        "upload": Permission.UPLOAD,
        "upload_in_parts": Permission.UPLOAD,
    }
    query_parameters = {"upload": frozenset({"on_error", "environment", "filename"})}
    page_actions = frozenset({"list", "uploads"})

    def perform_create(self, serializer: serializers.BaseSerializer[Dataset]) -> None:
        serializer.instance = create_dataset(**serializer.validated_data, user=self.person)

    @extend_schema(responses=UploadSerializer(many=True), filters=False)
    @action(detail=True, filterset_class=None, parser_classes=FILE_PARSERS)
    def uploads(self, request: Request, slug: str) -> Response:
        """The uploads into this dataset."""
        page = self.paginate_queryset(self.get_object().uploads.select_related("dataset", "version"))
        return self.get_paginated_response(UploadSerializer(page, many=True).data)

    @extend_schema(
        request={
            "multipart/form-data": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}},
            "application/x-ndjson": OpenApiTypes.BINARY,
            "application/jsonl": OpenApiTypes.BINARY,
            "application/octet-stream": OpenApiTypes.BINARY,
        },
        responses={201: UploadSerializer},
        parameters=[
            OpenApiParameter("on_error", str, enum=Upload.OnError.values, default=Upload.OnError.REJECT.value),
            OpenApiParameter("environment", str, description="Makes the dataset, if there is none, for this one."),
            OpenApiParameter("filename", str, description="The file's name, where the body is the file itself."),
        ],
    )
    @uploads.mapping.post
    def upload(self, request: Request, slug: str) -> Response:
        """Upload a file: as the form field `file`, or as the body itself, which is read as it arrives."""
        on_error = request.query_params.get("on_error", Upload.OnError.REJECT)
        if on_error not in Upload.OnError.values:
            raise _refuse("on_error", f"Choose one of: {', '.join(Upload.OnError.values)}.")
        # Before a dataset is made: a body that cannot be read must not leave one behind.
        stream, filename = open_body(request, filename=request.query_params.get("filename", "rows.jsonl"))
        dataset = self._dataset_for_upload(slug)
        return answer_upload(
            upload_file(dataset=dataset, stream=stream, filename=filename, on_error=on_error, user=self.person)
        )

    @extend_schema(request=PartsSerializer, responses={201: UploadSerializer})
    @action(detail=True, methods=["post"], url_path="uploads/parts")
    def upload_in_parts(self, request: Request, slug: str) -> Response:
        """Begin a large upload: PUT its parts to `/uploads/{id}/parts/`, then POST `/uploads/{id}/finish/`."""
        dataset = self.get_object()
        wanted = PartsSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        upload = start_parts(dataset=dataset, **wanted.validated_data, user=self.person)
        return Response(UploadSerializer(upload).data, status=HTTPStatus.CREATED)

    def _dataset_for_upload(self, slug: str) -> Dataset:
        dataset = Dataset.objects.filter(slug=slug).first()
        if dataset is not None:
            return dataset
        wanted = self.request.query_params.get("environment")
        if wanted is None:
            raise NotFound(f"There is no dataset {slug}. Create it, or name its ?environment= to make it by uploading.")
        environment = Environment.objects.filter(slug=wanted).first()
        if environment is None:
            raise _refuse("environment", f"There is no environment {wanted}.")
        given = DatasetSerializer(data={"slug": slug, "name": slug, "environment": wanted})
        given.is_valid(raise_exception=True)
        return create_dataset(slug=slug, name=slug, environment=environment, user=self.person)


def _refuse(parameter: str, message: str) -> QueryProblem:
    return QueryProblem([{"pointer": f"?{parameter}", "code": "invalid", "message": message}])
