"""Collections while they run and afterwards: their limits, pausing, trying again, cancelling, the archive."""

from typing import Any, get_args

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.collection_serializers import MOVING, CollectionDetailSerializer, CollectionSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.errors import ErrorKind
from apps.rollouts.plans.plan_spec import Limits
from apps.rollouts.steering.archiving import archive_collection, restore_collection
from apps.rollouts.steering.controls import (
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)
from apps.rollouts.steering.flag_resolution import resolve_flags


@spec_serializer(Limits, partial=True)
class LimitsSerializer(DeclaredFields, serializers.Serializer[Any]):
    """What may be set when a collection is planned and while it runs."""


class RetrySerializer(DeclaredFields, serializers.Serializer[Any]):
    error_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=get_args(ErrorKind)),
        required=False,
        allow_empty=False,
        help_text="Only the rollouts that failed with one of these; left out: all that failed.",
    )


class QueuedSerializer(serializers.Serializer[Any]):
    queued = serializers.IntegerField(help_text="Rollouts that were queued again.")


class ResolvedSerializer(serializers.Serializer[Any]):
    resolved = serializers.IntegerField(help_text="Rollouts that were flagged.")


class SteeringActions(TableViewSet):
    """The part of the viewset of collections that steers them."""

    @extend_schema(request=LimitsSerializer, responses=CollectionSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change priority, concurrency and limits, while it runs too. A limit that is null is none."""
        collection = self.get_object()
        context = {"shown": CollectionDetailSerializer(collection).data, "moving": MOVING}
        limits = LimitsSerializer(data=request.data, partial=True, context=context)
        limits.is_valid(raise_exception=True)
        changed = adjust_collection(collection=collection, changes=dict(limits.validated_data), user=self.person)
        return Response(CollectionSerializer(changed).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Claim no more of it; what runs goes on to its end."""
        return Response(CollectionSerializer(pause_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Claim of it again. Where a limit paused it, the limit has to be raised first."""
        return Response(CollectionSerializer(resume_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=RetrySerializer, responses=QueuedSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Queue the failed rollouts again, all or by error kind; their earlier attempts stay readable."""
        asked = RetrySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        kinds = asked.validated_data.get("error_kinds", [])
        queued = retry_failed(collection=self.get_object(), error_kinds=kinds, user=self.person)
        return Response(QueuedSerializer({"queued": queued}).data)

    @extend_schema(request=None, responses=ResolvedSerializer)
    @action(detail=True, methods=["post"])
    def resolve_flags(self, request: Request, pk: str) -> Response:
        """Confirm that the redactions of its ended rollouts were checked. Exports include these rollouts again."""
        resolved = resolve_flags(collection=self.get_object(), user=self.person)
        return Response(ResolvedSerializer({"resolved": resolved}).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel queued rollouts at once, and running rollouts within two seconds."""
        return Response(CollectionSerializer(cancel_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def archive(self, request: Request, pk: str) -> Response:
        """Lists leave it out from now on; nothing of it changes."""
        return Response(CollectionSerializer(archive_collection(collection=self.get_object(), user=self.person)).data)

    @extend_schema(request=None, responses=CollectionSerializer)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Lists show it again."""
        return Response(CollectionSerializer(restore_collection(collection=self.get_object(), user=self.person)).data)
