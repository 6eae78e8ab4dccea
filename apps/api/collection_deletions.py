"""Deletions of collections: how far they are, and how they ended."""

from typing import Any

from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.viewsets import TableViewSet
from apps.rollouts.models import CollectionDeletion


class CollectionDeletionSerializer(serializers.ModelSerializer[CollectionDeletion]):
    collection = serializers.PrimaryKeyRelatedField[Any](read_only=True)

    class Meta:
        model = CollectionDeletion
        fields = ["id", "collection", "name", "state", "total", "deleted", "message", "created_at"]


class CollectionDeletionViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = CollectionDeletion.objects.all()
    serializer_class = CollectionDeletionSerializer
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
