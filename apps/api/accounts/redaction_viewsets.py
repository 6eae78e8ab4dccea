"""Custom redaction patterns, and a test of redaction on a text."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin, DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import filter_set
from apps.policies.installation_redactor import MAX_SAMPLE, delete_pattern, fresh_redactor, save_pattern
from apps.policies.models import RedactionPattern


class RedactionPatternSerializer(DeclaredFields, serializers.ModelSerializer[RedactionPattern]):
    class Meta:
        model = RedactionPattern
        fields = ["id", "kind", "text", "least", "created_at"]
        # Duplicates are rejected by the operation, with the same message as on the page.
        validators: list[Any] = []


class SampleSerializer(DeclaredFields, serializers.Serializer[Any]):
    sample = serializers.CharField(max_length=MAX_SAMPLE, trim_whitespace=False, help_text="Not stored")


class TriedSerializer(serializers.Serializer[Any]):
    clean = serializers.CharField(help_text="The text after redaction.")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Number of redactions by kind.")


class RedactionPatternViewSet(DestroyModelMixin, CreateModelMixin, RowViewSet):
    noun = "pattern"
    queryset = RedactionPattern.objects.all()
    serializer_class = RedactionPatternSerializer
    filterset_class = filter_set(kind=django_filters.ChoiceFilter(choices=RedactionPattern.Kind.choices))
    permissions = dict.fromkeys(["list", "retrieve", "create", "destroy", "attempt"], Permission.CONFIGURE)

    def perform_create(self, serializer: serializers.BaseSerializer[RedactionPattern]) -> None:
        serializer.instance = save_pattern(pattern=RedactionPattern(**serializer.validated_data), user=self.user)

    perform_destroy = row_deletion(delete_pattern, "Delete a pattern. Redacted text stays redacted.")

    @operation(detail=False, url_path="try", request=SampleSerializer, responses=TriedSerializer)
    def attempt(self, request: Request) -> Response:
        """Test redaction on a text with the current patterns."""
        clean, counts = fresh_redactor().redact_text(self.read_body(SampleSerializer)["sample"])
        return Response(TriedSerializer({"clean": clean, "counts": counts}).data)
