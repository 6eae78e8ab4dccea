"""Exports: files for trainers, with their manifests."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import django_filters
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.declared import DeclaredFields
from apps.api.filters import IdFilter
from apps.api.problems import Problem
from apps.api.viewsets import TableViewSet
from apps.exports.deleting import delete_export
from apps.exports.downloading import stream_file
from apps.exports.exporting import queue_export
from apps.exports.models import Export, ExportFormat, PairSet
from apps.rollouts.models import Collection


class ExportSerializer(serializers.ModelSerializer[Export]):
    filters = serializers.DictField(read_only=True)

    class Meta:
        model = Export
        fields = [
            "id",
            "format",
            "collection",
            "pair_set",
            "filters",
            "state",
            "rows",
            "bytes",
            "sha256",
            "message",
            "created_at",
        ]


class OrderSerializer(DeclaredFields, serializers.Serializer[Any]):
    format = serializers.ChoiceField(choices=ExportFormat.choices)
    collection = serializers.PrimaryKeyRelatedField(queryset=Collection.objects.present())
    pair_set = serializers.PrimaryKeyRelatedField(
        queryset=PairSet.objects.all(), required=False, allow_null=True, help_text="For `trl_dpo`."
    )
    filters = serializers.DictField(required=False, help_text='e.g. {"min_reward": 0.7}')


class ExportFilter(django_filters.FilterSet):
    format = django_filters.ChoiceFilter(choices=ExportFormat.choices)
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
        "download": Permission.EXPORT,
        "manifest": Permission.EXPORT,
        "destroy": Permission.EXPORT,
    }

    problems = {"download": {410, 409, 416}}

    @extend_schema(request=OrderSerializer, responses={201: ExportSerializer})
    def create(self, request: Request) -> Response:
        """Queue an export: a worker writes the file, and `state` says when it is ready."""
        order = OrderSerializer(data=request.data)
        order.is_valid(raise_exception=True)
        export = queue_export(**order.validated_data, user=self.person)
        return Response(ExportSerializer(export).data, status=HTTPStatus.CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the export and its file."""
        delete_export(export=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY})
    @action(detail=True)
    def download(self, request: Request, pk: str) -> HttpResponseBase:
        """The file; takes Range and If-None-Match."""
        export: Export = self.get_object()
        if export.state != Export.State.READY:
            raise Problem(HTTPStatus.CONFLICT, "not-ready", f"This export is {export.get_state_display()}.")
        path = Path(export.path)
        if not path.exists():
            raise Problem(HTTPStatus.GONE, "file-gone", "The file of this export is no longer on the server.")
        return stream_file(
            request._request, path, filename=path.name, content_type="application/x-ndjson", sha256=export.sha256
        )

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True)
    def manifest(self, request: Request, pk: str) -> Response:
        """What the file holds and why rows were left out."""
        manifest: dict[str, Any] = self.get_object().manifest
        return Response(manifest)
