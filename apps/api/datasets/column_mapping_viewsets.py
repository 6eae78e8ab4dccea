"""Saved column mappings: how files of certain columns become tasks."""

from http import HTTPStatus
from typing import Any

from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin, UpdateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SLUG, TableViewSet, assign
from apps.api.framework.declared_fields import DeclaredFields
from apps.gym.tasks.mappings.column_mapping import MappingRefused, read_mapping
from apps.tasks.column_mapping_changes import delete_mapping, save_mapping
from apps.tasks.models import ColumnMapping


class ColumnMappingSerializer(DeclaredFields, serializers.ModelSerializer[ColumnMapping]):
    mapping = serializers.DictField(help_text="Paths and templates; see docs/datasets.md.")

    class Meta:
        model = ColumnMapping
        fields = ["id", "slug", "name", "mapping", "created_at"]

    def validate_mapping(self, given: dict[str, Any]) -> dict[str, Any]:
        try:
            read_mapping(given)
        except MappingRefused as error:
            raise serializers.ValidationError(f"/{error.argument}: {error}") from None
        return given


class ColumnMappingViewSet(CreateModelMixin, UpdateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = ColumnMapping.objects.all()
    serializer_class = ColumnMappingSerializer
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        "list": Permission.READ_TASKS,
        "retrieve": Permission.READ_TASKS,
        "create": Permission.UPLOAD,
        "update": Permission.UPLOAD,
        "partial_update": Permission.UPLOAD,
        "destroy": Permission.UPLOAD,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[ColumnMapping]) -> None:
        self._save(serializer, ColumnMapping())

    def perform_update(self, serializer: serializers.BaseSerializer[ColumnMapping]) -> None:
        self._save(serializer, self.get_object())

    def _save(self, serializer: serializers.BaseSerializer[ColumnMapping], mapping: ColumnMapping) -> None:
        assign(mapping, serializer.validated_data)
        serializer.instance = save_mapping(mapping, user=self.person)

    def destroy(self, request: Request, slug: str) -> Response:
        """Forget a mapping; uploads keep the one they were made with."""
        delete_mapping(mapping=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)
