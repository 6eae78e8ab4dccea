"""What this installation takes for a credential besides the built-in rules, and a text to try it on."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.models import RedactionPattern
from apps.policies.redaction_patterns import MAX_SAMPLE, delete_pattern, save_pattern


class RedactionPatternSerializer(DeclaredFields, serializers.ModelSerializer[RedactionPattern]):
    class Meta:
        model = RedactionPattern
        fields = ["id", "kind", "text", "least", "created_at"]
        # One that is there already is told by the operation, in the words of the page.
        validators: list[Any] = []


class SampleSerializer(DeclaredFields, serializers.Serializer[Any]):
    sample = serializers.CharField(max_length=MAX_SAMPLE, trim_whitespace=False, help_text="It is not stored.")


class TriedSerializer(serializers.Serializer[Any]):
    clean = serializers.CharField(help_text="The text as it would be stored.")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="How many were taken out, by kind.")


class RedactionPatternFilter(django_filters.FilterSet):
    kind = django_filters.ChoiceFilter(choices=RedactionPattern.Kind.choices)

    class Meta:
        model = RedactionPattern
        fields: list[str] = []


class RedactionPatternViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = RedactionPattern.objects.all()
    serializer_class = RedactionPatternSerializer
    filterset_class = RedactionPatternFilter
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.CONFIGURE,
        "retrieve": Permission.CONFIGURE,
        "create": Permission.CONFIGURE,
        "destroy": Permission.CONFIGURE,
        "attempt": Permission.CONFIGURE,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[RedactionPattern]) -> None:
        pattern = RedactionPattern(**serializer.validated_data)
        serializer.instance = save_pattern(pattern=pattern, user=self.person)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a pattern. What was redacted by it stays so."""
        delete_pattern(pattern=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(request=SampleSerializer, responses=TriedSerializer)
    @action(detail=False, methods=["post"], url_path="try")
    def attempt(self, request: Request) -> Response:
        """What redaction makes of a text, with the patterns as they are now."""
        sample = SampleSerializer(data=request.data)
        sample.is_valid(raise_exception=True)
        clean, counts = fresh_redactor().redact_text(sample.validated_data["sample"])
        return Response(TriedSerializer({"clean": clean, "counts": counts}).data)
