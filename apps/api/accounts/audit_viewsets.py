"""The audit log, for admins."""

from typing import Any, cast

import django_filters
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from apps.accounts.audit_files import COLUMNS, FORMATS, tag_entries
from apps.accounts.keyset_reading import one_by_one
from apps.accounts.models import AuditEntry, AuditEntryQuerySet
from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.file_answers import TABLE_FILE, TABLE_RENDERERS, stream_rows
from apps.api.framework.query_filters import filter_set, read_format


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    user = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True, help_text="Null if no user was signed in."
    )
    key = serializers.CharField(
        source="api_key.prefix", read_only=True, allow_null=True, default=None, help_text="Prefix of the API key."
    )
    before = serializers.DictField(read_only=True, help_text="Old values by field.")
    after = serializers.DictField(read_only=True, help_text="New values by field.")
    detail = serializers.DictField(read_only=True)

    class Meta:
        model = AuditEntry
        fields = COLUMNS


class AuditEntryViewSet(RowViewSet):
    queryset = AuditEntry.objects.with_actors()
    serializer_class = AuditEntrySerializer
    filterset_class = filter_set(
        user=django_filters.CharFilter(field_name="user__username"),
        key=django_filters.CharFilter(field_name="api_key__prefix", label="The prefix of an API key."),
        noun=django_filters.CharFilter(field_name="noun", label="Object of the action, for example `dataset`."),
        action=django_filters.CharFilter(field_name="action", label="For example `dataset.create`."),
        since=django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte"),
        until=django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt"),
    )
    permissions = {"list": Permission.AUDIT, "retrieve": Permission.AUDIT, "export": Permission.AUDIT}

    @operation("get", detail=False, pagination_class=None, renderer_classes=TABLE_RENDERERS, filters=True, **TABLE_FILE)
    def export(self, request: Request) -> HttpResponseBase:
        """Download all entries that match the filters, oldest first, as NDJSON or CSV.

        The ETag changes with each new entry. Supports If-None-Match, not Range.
        """
        name, content_type, read = read_format(request, FORMATS)
        entries = cast(AuditEntryQuerySet, self.filter_queryset(self.get_queryset()))
        etag, entries = tag_entries(entries, format=name)
        return stream_rows(
            request, one_by_one(read(entries)), etag=etag, filename=f"audit.{name}", content_type=content_type
        )
