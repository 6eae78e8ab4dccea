"""Uploads: files on their way into a dataset."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.filters import SlugFilter
from apps.api.viewsets import TableViewSet
from apps.tasks.models import Upload


class LineErrorSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class UploadSerializer(serializers.ModelSerializer[Upload]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True, allow_null=True, default=None)
    # `errors` is a property of every serializer, and here a column too.
    errors = LineErrorSerializer(many=True, read_only=True, help_text="The first bad lines.")  # type: ignore[assignment]

    class Meta:
        model = Upload
        fields = [
            "id",
            "dataset",
            "version",
            "state",
            "on_error",
            "filename",
            "received_bytes",
            "lines",
            "accepted",
            "rejected",
            "errors",
            "message",
            "created_at",
        ]


class UploadFilter(django_filters.FilterSet):
    dataset = SlugFilter("dataset")
    state = django_filters.ChoiceFilter(choices=Upload.State.choices)

    class Meta:
        model = Upload
        fields: list[str] = []


class UploadViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Upload.objects.select_related("dataset", "version")
    serializer_class = UploadSerializer
    filterset_class = UploadFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
