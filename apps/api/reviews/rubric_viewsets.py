"""Rubrics: what reviewers score."""

from typing import Any

from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SlugViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.reviews.models import Rubric
from apps.reviews.reviews.rubric_changes import delete_rubric, save_rubric


class RubricSerializer(DeclaredFields, serializers.ModelSerializer[Rubric]):
    criteria = serializers.ListField(
        child=serializers.DictField(),
        help_text="Criteria with `key`, `label`, `kind` (numeric, boolean, category, text) and optional `help` and "
        "`required`. Numeric criteria have `minimum`, `maximum` and optional `step`; categories have `choices`.",
    )

    class Meta:
        model = Rubric
        fields = ["id", "slug", "name", "description", "criteria", "created_at"]


class RubricViewSet(DestroyModelMixin, SlugViewSet):
    queryset = Rubric.objects.all()
    serializer_class = RubricSerializer
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.LEAD,
        "update": Permission.LEAD,
        "partial_update": Permission.LEAD,
        "destroy": Permission.LEAD,
    }

    def save(self, row: Rubric, api_key: str | None) -> Rubric:
        row.created_by = row.created_by if row.pk else self.user
        return save_rubric(rubric=row, user=self.user)

    def perform_destroy(self, instance: Any) -> None:
        delete_rubric(rubric=instance, user=self.user)
