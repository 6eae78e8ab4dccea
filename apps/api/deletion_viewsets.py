"""Progress and results of deletions of datasets, versions, collections and rollouts."""

from http import HTTPStatus
from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.pagination import MAX_KEY
from apps.gym.outcomes import ERROR_KINDS, STOP_REASONS
from apps.rollouts.models import CollectionDeletion
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH
from apps.rollouts.steering.rollout_deletion import ENDED, MAX_IDS
from apps.tasks.models import Deletion


class DeletionSerializer(serializers.ModelSerializer[Deletion]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)

    class Meta:
        model = Deletion
        fields = ["id", "dataset", "name", "whole", "state", "total", "deleted", "message", "created_at"]


class CollectionDeletionSerializer(serializers.ModelSerializer[CollectionDeletion]):
    collection = serializers.PrimaryKeyRelatedField[Any](read_only=True)
    chosen = serializers.DictField(read_only=True, help_text="Rollouts to delete; empty: all, and the collection.")

    class Meta:
        model = CollectionDeletion
        fields = [
            "id",
            "collection",
            "chosen",
            "traces_only",
            "name",
            "state",
            "total",
            "deleted",
            "deleted_events",
            "deleted_bytes",
            "message",
            "created_at",
        ]


class ChosenSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Selects rollouts that match all given fields."""

    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=MAX_KEY), required=False, max_length=MAX_IDS
    )
    status = serializers.ChoiceField(choices=[str(one) for one in ENDED], required=False)
    error_kind = serializers.ChoiceField(choices=ERROR_KINDS, required=False)
    stop_reason = serializers.ChoiceField(choices=STOP_REASONS, required=False)
    min_reward = serializers.FloatField(required=False)
    max_reward = serializers.FloatField(required=False)
    flagged = serializers.BooleanField(required=False)
    lacks_usage = serializers.BooleanField(required=False, help_text="Has replies without token counts.")
    q = serializers.CharField(required=False, max_length=MAX_LENGTH, help_text="A rollout filter, as in `?q=`.")


def answer_deletion(deletion: Deletion | CollectionDeletion) -> Response:
    """Return 202 with the URL to poll for progress."""
    if isinstance(deletion, Deletion):
        route, shown = "deletions", DeletionSerializer(deletion).data
    else:
        route, shown = "collection-deletions", CollectionDeletionSerializer(deletion).data
    return Response(shown, status=HTTPStatus.ACCEPTED, headers={"Location": f"/api/v1/{route}/{deletion.pk}/"})


class DeletionViewSet(RowViewSet):
    queryset = Deletion.objects.select_related("dataset")
    serializer_class = DeletionSerializer
    permissions = {"list": Permission.READ_TASKS, "retrieve": Permission.READ_TASKS}


class CollectionDeletionViewSet(RowViewSet):
    queryset = CollectionDeletion.objects.all()
    serializer_class = CollectionDeletionSerializer
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
