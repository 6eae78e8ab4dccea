"""Disk use, and retention rules."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.deletion_viewsets import CollectionDeletionSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.record_serializers import make_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.exports.retention.retention_plan import apply_retention, plan_retention
from apps.exports.retention.retention_rule import RetentionRule
from apps.exports.retention.storage_use import StorageUse, read_storage

StorageUseSerializer = make_serializer(
    "StorageUse",
    StorageUse,
    free="Bytes of the SQLite file that no row uses.",
    tables="Bytes with indexes. Empty if measuring takes too long.",
    collections="Traces of the collections with most rollouts.",
)


@spec_serializer(RetentionRule)
class RetentionRuleSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Selects finished collections that match all fields."""


class MatchingCollectionSerializer(serializers.Serializer[Any]):
    collection = serializers.IntegerField(source="collection.pk")
    rollouts = serializers.IntegerField()
    events = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="Bytes of traces and their words in the search index.")
    uses = serializers.DictField(
        child=serializers.IntegerField(), help_text="Numbers of objects that protect the collection, by kind."
    )


class RetentionPlanSerializer(serializers.Serializer[Any]):
    rollouts = serializers.IntegerField()
    events = serializers.IntegerField()
    bytes = serializers.IntegerField()
    deleted = MatchingCollectionSerializer(many=True)
    kept = MatchingCollectionSerializer(many=True)


class RetentionViewSet(TableViewSet):
    serializer_class = RetentionPlanSerializer
    filter_backends = ()
    pagination_class = None
    permissions = {
        "storage": Permission.RETENTION,
        "preview": Permission.RETENTION,
        "apply": Permission.RETENTION,
    }

    @extend_schema(responses=StorageUseSerializer, operation_id="storage_retrieve")
    def storage(self, request: Request) -> Response:
        """Return the disk use of tables and collections, largest first."""
        return Response(StorageUseSerializer(read_storage()).data)

    @extend_schema(request=RetentionRuleSerializer, responses=RetentionPlanSerializer, operation_id="retention_preview")
    def preview(self, request: Request) -> Response:
        """Return what a rule deletes and keeps now. Deletes nothing."""
        return Response(RetentionPlanSerializer(plan_retention(self._read_rule())).data)

    @extend_schema(
        request=RetentionRuleSerializer,
        responses={202: CollectionDeletionSerializer(many=True)},
        operation_id="retention_apply",
    )
    def apply(self, request: Request) -> Response:
        """Delete what the preview of this rule names. Poll the returned deletions for progress."""
        deletions = apply_retention(self._read_rule(), user=self.user)
        return Response(CollectionDeletionSerializer(deletions, many=True).data, status=HTTPStatus.ACCEPTED)

    def _read_rule(self) -> RetentionRule:
        return RetentionRule(**self.read_body(RetentionRuleSerializer))
