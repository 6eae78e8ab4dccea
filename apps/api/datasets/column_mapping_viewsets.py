"""Saved column mappings of uploads."""

from typing import Any

from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SlugViewSet, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.gym.tasks.mappings.column_mapping import MappingRefused, read_mapping
from apps.tasks.column_mapping_changes import delete_mapping, save_mapping
from apps.tasks.models import ColumnMapping


class ColumnMappingSerializer(DeclaredFields, serializers.ModelSerializer[ColumnMapping]):
    mapping = serializers.DictField(help_text="Paths and templates; see docs/use/datasets.md.")

    class Meta:
        model = ColumnMapping
        fields = ["id", "slug", "name", "mapping", "created_at"]

    def validate_mapping(self, given: dict[str, Any]) -> dict[str, Any]:
        try:
            read_mapping(given)
        except MappingRefused as error:
            raise serializers.ValidationError(f"/{error.argument}: {error}") from None
        return given


class ColumnMappingViewSet(SlugViewSet, DestroyModelMixin):
    noun = "mapping"
    save_row = staticmethod(save_mapping)
    queryset = ColumnMapping.objects.all()
    serializer_class = ColumnMappingSerializer
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ_TASKS),
        **dict.fromkeys(["create", "update", "partial_update", "destroy"], Permission.UPLOAD),
    }

    perform_destroy = row_deletion(
        delete_mapping, "Delete a mapping. Uploads keep the mapping with which they were loaded."
    )
