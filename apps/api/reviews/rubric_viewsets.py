"""Rubrics: what people are asked to score."""

from typing import Any

from rest_framework import serializers
from rest_framework.mixins import (
    CreateModelMixin,
    DestroyModelMixin,
    ListModelMixin,
    RetrieveModelMixin,
    UpdateModelMixin,
)

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SLUG, TableViewSet, assign
from apps.api.framework.declared_fields import DeclaredFields
from apps.reviews.models import Rubric
from apps.reviews.reviews.rubric_changes import delete_rubric, save_rubric


class RubricSerializer(DeclaredFields, serializers.ModelSerializer[Rubric]):
    criteria = serializers.ListField(
        child=serializers.DictField(),
        help_text="Each with `key`, `label`, `kind` (numeric, boolean, category, text), perhaps `help` and `required`; "
        "numeric ones with `minimum`, `maximum` and perhaps `step`, categories with `choices`.",
    )

    class Meta:
        model = Rubric
        fields = ["id", "slug", "name", "description", "criteria", "created_at"]


class RubricViewSet(
    CreateModelMixin, UpdateModelMixin, DestroyModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet
):
    queryset = Rubric.objects.all()
    serializer_class = RubricSerializer
    lookup_field = "slug"
    lookup_value_regex = SLUG
    problems = {"update": {409}, "partial_update": {409}, "destroy": {409}}
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.LEAD,
        "update": Permission.LEAD,
        "partial_update": Permission.LEAD,
        "destroy": Permission.LEAD,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[Rubric]) -> None:
        self._save(serializer, Rubric(created_by=self.person))

    def perform_update(self, serializer: serializers.BaseSerializer[Rubric]) -> None:
        self._save(serializer, self.get_object())

    def perform_destroy(self, instance: Any) -> None:
        delete_rubric(rubric=instance, user=self.person)

    def _save(self, serializer: serializers.BaseSerializer[Rubric], rubric: Rubric) -> None:
        assign(rubric, serializer.validated_data)
        serializer.instance = save_rubric(rubric=rubric, user=self.person)
