"""Rubrics: what reviewers score."""

from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin

from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SlugViewSet, row_deletion
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
    noun = "rubric"
    queryset = Rubric.objects.all()
    serializer_class = RubricSerializer
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update", "destroy"], Permission.LEAD),
    }

    def save_row(self, *, rubric: Rubric, user: User) -> Rubric:
        rubric.created_by = rubric.created_by if rubric.pk else user
        return save_rubric(rubric=rubric, user=user)

    perform_destroy = row_deletion(delete_rubric, "")
