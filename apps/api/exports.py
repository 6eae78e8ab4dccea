"""Exports: files for trainers, with their manifests."""

from typing import Any

import django_filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.filters import IdFilter
from apps.api.viewsets import TableViewSet
from apps.exports.models import Export, ExportFormat


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
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "manifest": Permission.READ}

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True)
    def manifest(self, request: Request, pk: str) -> Response:
        """What the file holds and why rows were left out."""
        manifest: dict[str, Any] = self.get_object().manifest
        return Response(manifest)
