"""Saved views of tables: filter, order and columns under a name, private or shared."""

from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import SavedView
from apps.accounts.permissions import Permission
from apps.accounts.table_preferences import change_view, delete_view, save_view
from apps.api.framework.base_viewsets import RowViewSet, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.policies.redacted_fields import redact_input
from apps.rollouts.search.filters.filter_grammar import FilterRefused
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter

MOST_COLUMNS = 40


class SavedViewSerializer(DeclaredFields, serializers.ModelSerializer[SavedView]):
    user = serializers.CharField(source="user.username", read_only=True, help_text="Owner.")
    query = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_LENGTH, help_text="A rollout filter, as in `?q=`."
    )
    sort = serializers.RegexField(
        "^-?[a-z_]{1,30}$",
        required=False,
        allow_blank=True,
        help_text="Sort column; `-` for descending.",
    )
    columns = serializers.ListField(
        child=serializers.CharField(max_length=32),
        required=False,
        max_length=MOST_COLUMNS,
        help_text="Columns to show; empty: the columns of each reader.",
    )

    class Meta:
        model = SavedView
        fields = ["id", "user", "table", "name", "query", "sort", "columns", "is_shared", "created_at"]
        read_only_fields = ["table"]
        # The operation rejects names that are taken, because it knows which views may be replaced.
        validators: list[Any] = []

    def validate_query(self, text: str) -> str:
        try:
            return str(parse_filter(text))
        except FilterRefused as refusal:
            code = "unknown" if refusal.key else "invalid"
            raise serializers.ValidationError(f"At character {refusal.start + 1}: {refusal}", code=code) from None


class NewSavedViewSerializer(SavedViewSerializer):
    replace = serializers.BooleanField(
        default=False,
        write_only=True,
        help_text="Replaces your view with this name and keeps its id. Otherwise an existing name gives "
        "a 409 with its id as `saved_view`.",
    )

    class Meta(SavedViewSerializer.Meta):
        fields = [*SavedViewSerializer.Meta.fields, "replace"]


def _cleaned(given: dict[str, Any]) -> dict[str, Any]:
    """Return the input with credentials redacted in name and filter."""
    return {name: redact_input(one) if isinstance(one, str) else one for name, one in given.items()}


class SavedViewViewSet(DestroyModelMixin, RowViewSet):
    noun = "view"
    queryset = SavedView.objects.none()
    serializer_class = SavedViewSerializer
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "partial_update", "destroy"], Permission.VIEWS),
    }

    def get_queryset(self) -> QuerySet[SavedView]:
        if not self.request.user.is_authenticated:
            return self.queryset
        return SavedView.objects.seen_by(self.user).select_related("user")

    @extend_schema(request=NewSavedViewSerializer, responses={201: SavedViewSerializer})
    def create(self, request: Request) -> Response:
        """Save a view. Its name must be unique among the user's views."""
        given = self.read_body(NewSavedViewSerializer, context=self.get_serializer_context())
        view = save_view(user=self.user, table="rollouts", **_cleaned(given))
        return Response(SavedViewSerializer(view).data, status=HTTPStatus.CREATED)

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change one of your own views."""
        view = self.get_object()
        changes = _cleaned(self.read_body(SavedViewSerializer, view, partial=True))
        return Response(SavedViewSerializer(change_view(view=view, user=self.user, **changes)).data)

    perform_destroy = row_deletion(delete_view, "Delete one of your own views.")
