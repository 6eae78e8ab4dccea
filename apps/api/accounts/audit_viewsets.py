"""The audit log, for admins."""

from typing import Any, cast

import django_filters
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from apps.accounts.audit_files import FORMATS, tag_entries
from apps.accounts.models import AuditEntry, AuditEntryQuerySet
from apps.accounts.permissions import Permission
from apps.api.collections.stream_viewsets import NdjsonRenderer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.file_answers import stream_rows
from apps.api.framework.problems import QueryProblem


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    user = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True, help_text="Null: nobody signed in."
    )
    key = serializers.CharField(
        source="api_key.prefix", read_only=True, allow_null=True, default=None, help_text="Prefix of the API key."
    )
    before = serializers.DictField(read_only=True, help_text="What the change replaced, by field.")
    after = serializers.DictField(read_only=True, help_text="What it put there.")
    detail = serializers.DictField(read_only=True)

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "user", "key", "origin", "address", "action", "target", "before", "after", "detail"]


class AuditEntryFilter(django_filters.FilterSet):
    user = django_filters.CharFilter(field_name="user__username")
    key = django_filters.CharFilter(field_name="api_key__prefix", label="The prefix of an API key.")
    noun = django_filters.CharFilter(field_name="noun", label="What an action is about, such as `dataset`.")
    action = django_filters.CharFilter(field_name="action", label="Such as `dataset.create`.")
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")
    until = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt")

    class Meta:
        model = AuditEntry
        fields: list[str] = []


class CsvRenderer(JSONRenderer):
    """Lets a client say that it accepts CSV; the lines are made elsewhere."""

    media_type = "text/csv"
    format = "csv"


class AuditEntryViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = AuditEntry.objects.with_actors()
    serializer_class = AuditEntrySerializer
    filterset_class = AuditEntryFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.AUDIT, "retrieve": Permission.AUDIT, "export": Permission.AUDIT}
    query_parameters = {"export": frozenset({"format", *AuditEntryFilter.base_filters})}

    @extend_schema(
        filters=True,
        responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY, (200, "text/csv"): OpenApiTypes.BINARY},
        parameters=[OpenApiParameter("format", str, enum=list(FORMATS), default="ndjson")],
    )
    @action(detail=False, pagination_class=None, renderer_classes=[JSONRenderer, NdjsonRenderer, CsvRenderer])
    def export(self, request: Request) -> HttpResponseBase:
        """All entries that the filters let through, the oldest first, streamed as NDJSON or CSV. The ETag changes when
        one is added. Takes If-None-Match and no Range."""
        name = request.query_params.get("format", "ndjson")
        if name not in FORMATS:
            message = f"Give {' or '.join(FORMATS)}."
            raise QueryProblem([{"pointer": "?format", "code": "invalid", "message": message}])
        content_type, read = FORMATS[name]
        entries = cast(AuditEntryQuerySet, self.filter_queryset(self.get_queryset()))
        etag, entries = tag_entries(entries, format=name)
        return stream_rows(request, read(entries), etag=etag, filename=f"audit.{name}", content_type=content_type)
