"""Control collections: limits, pause, resume, retry, cancel, archive."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.collection_serializers import (
    CHANGING_FIELDS,
    CollectionDetailSerializer,
    CollectionSerializer,
)
from apps.api.framework.base_viewsets import TableViewSet, operation, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.outcomes import ERROR_KINDS
from apps.rollouts.plans.plan_spec import Limits
from apps.rollouts.steering.controls import (
    adjust_collection,
    archive_collection,
    cancel_collection,
    pause_collection,
    resolve_flags,
    restore_collection,
    resume_collection,
    retry_failed,
)


@spec_serializer(Limits, partial=True)
class LimitsSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Options that are set at planning time and can be changed while the collection runs."""


class RetrySerializer(DeclaredFields, serializers.Serializer[Any]):
    error_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=ERROR_KINDS),
        required=False,
        allow_empty=False,
        help_text="Only rollouts that failed with one of these error kinds. Default: all failed rollouts.",
    )


class QueuedSerializer(serializers.Serializer[Any]):
    queued = serializers.IntegerField(help_text="Number of rollouts queued again.")


class ResolvedSerializer(serializers.Serializer[Any]):
    resolved = serializers.IntegerField(help_text="Number of rollouts whose flags were resolved.")


class SteeringActions(TableViewSet):
    """Actions of the collection viewset that control it."""

    noun = "collection"

    @extend_schema(request=LimitsSerializer, responses=CollectionSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change priority, concurrency and limits, also while it is running. Null removes a limit."""
        collection = self.get_object()
        context = {"shown": CollectionDetailSerializer(collection).data, "changing": CHANGING_FIELDS}
        limits = self.read_body(LimitsSerializer, partial=True, context=context)
        changed = adjust_collection(collection=collection, changes=dict(limits), user=self.user)
        return Response(CollectionSerializer(changed).data)

    pause = row_action("pause", pause_collection, "Pause: no more rollouts start, and running ones finish.")
    resume = row_action(
        "resume", resume_collection, "Resume a paused collection. If a limit paused it, raise the limit first."
    )

    @operation(request=RetrySerializer, responses=QueuedSerializer)
    def retry(self, request: Request, pk: str) -> Response:
        """Queue failed rollouts again, all or by error kind. Earlier attempts stay readable."""
        kinds = self.read_body(RetrySerializer).get("error_kinds", [])
        queued = retry_failed(collection=self.get_object(), error_kinds=kinds, user=self.user)
        return Response(QueuedSerializer({"queued": queued}).data)

    @operation(responses=ResolvedSerializer)
    def resolve_flags(self, request: Request, pk: str) -> Response:
        """Confirm that the redactions of its ended rollouts were checked. Exports include these rollouts again."""
        resolved = resolve_flags(collection=self.get_object(), user=self.user)
        return Response(ResolvedSerializer({"resolved": resolved}).data)

    cancel = row_action(
        "cancel", cancel_collection, "Cancel queued rollouts at once, and running rollouts within two seconds."
    )
    archive = row_action(
        "archive", archive_collection, "Archive: hide the collection from lists. Nothing else changes."
    )
    restore = row_action("restore", restore_collection, "Restore: show the collection in lists again.")
