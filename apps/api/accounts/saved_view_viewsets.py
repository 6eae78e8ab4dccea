"""Saved views of tables: a filter, an order and columns under a name, one's own and those that others share."""

from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import SavedView
from apps.accounts.permissions import Permission
from apps.accounts.table_preferences import change_view, delete_view, save_view
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.policies.typed_texts import clean_typed
from apps.rollouts.search.filters.filter_grammar import FilterRefused
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter

MOST_COLUMNS = 40


class SavedViewSerializer(DeclaredFields, serializers.ModelSerializer[SavedView]):
    user = serializers.CharField(source="user.username", read_only=True, help_text="Who saved it.")
    query = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_LENGTH, help_text="A filter, as `?q=` of the rollouts."
    )
    sort = serializers.RegexField(
        "^-?[a-z_]{1,30}$",
        required=False,
        allow_blank=True,
        help_text="What the page sorts by; `-` for the largest first.",
    )
    columns = serializers.ListField(
        child=serializers.CharField(max_length=32),
        required=False,
        max_length=MOST_COLUMNS,
        help_text="Those that the page shows; none: as each reader has chosen.",
    )

    class Meta:
        model = SavedView
        fields = ["id", "user", "table", "name", "query", "sort", "columns", "is_shared", "created_at"]
        read_only_fields = ["table"]
        # Of names that are taken the operation speaks, which knows what may be replaced.
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
        help_text="Saves it in place of one's own of this name, which keeps its number; else a name that is taken is a "
        "409 with that view's number as `saved_view`.",
    )

    class Meta(SavedViewSerializer.Meta):
        fields = [*SavedViewSerializer.Meta.fields, "replace"]


def _cleaned(given: serializers.BaseSerializer[SavedView]) -> dict[str, Any]:
    """What was given, without credentials in its name and its filter."""
    return {name: clean_typed(one) if isinstance(one, str) else one for name, one in given.validated_data.items()}


class SavedViewViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = SavedView.objects.none()
    serializer_class = SavedViewSerializer
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.VIEWS,
        "partial_update": Permission.VIEWS,
        "destroy": Permission.VIEWS,
    }

    def get_queryset(self) -> QuerySet[SavedView]:
        if not self.request.user.is_authenticated:
            return self.queryset
        return SavedView.objects.seen_by(self.person).select_related("user")

    @extend_schema(request=NewSavedViewSerializer, responses={201: SavedViewSerializer})
    def create(self, request: Request) -> Response:
        """Save a view under a name, which is one's own only once."""
        given = NewSavedViewSerializer(data=request.data, context=self.get_serializer_context())
        given.is_valid(raise_exception=True)
        view = save_view(user=self.person, table="rollouts", **_cleaned(given))
        return Response(SavedViewSerializer(view).data, status=HTTPStatus.CREATED)

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a view of one's own."""
        view = self.get_object()
        changes = self.get_serializer(view, data=request.data, partial=True)
        changes.is_valid(raise_exception=True)
        return Response(SavedViewSerializer(change_view(view=view, user=self.person, **_cleaned(changes))).data)

    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a view of one's own."""
        delete_view(view=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)
