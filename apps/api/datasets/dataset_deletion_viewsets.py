"""Deletions of datasets and versions."""

from http import HTTPStatus
from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet
from apps.tasks.models import Deletion


class DeletionSerializer(serializers.ModelSerializer[Deletion]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)

    class Meta:
        model = Deletion
        fields = ["id", "dataset", "name", "whole", "state", "total", "deleted", "message", "created_at"]


def accept_deletion(deletion: Deletion) -> Response:
    address = {"Location": f"/api/v1/deletions/{deletion.pk}/"}
    return Response(DeletionSerializer(deletion).data, status=HTTPStatus.ACCEPTED, headers=address)


class DeletionViewSet(RowViewSet):
    queryset = Deletion.objects.select_related("dataset")
    serializer_class = DeletionSerializer
    permissions = {"list": Permission.READ_TASKS, "retrieve": Permission.READ_TASKS}
