"""Trackers, runs of collections, and pushes of exports to the Hugging Face Hub. Credentials are write-only."""

from http import HTTPStatus
from typing import Any, ClassVar

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, SavedRowViewSet, row_action, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter, filter_set
from apps.api.framework.spec_serializers import spec_serializer
from apps.tracking.hub_pushes import PushSpec, queue_push
from apps.tracking.models import HubPush, TrackedRun, Tracker
from apps.tracking.run_links import delete_run, resend_run, stop_run, track_collection
from apps.tracking.tracker_changes import MAX_SECRET, delete_tracker, save_tracker
from apps.tracking.tracking_spec import TrackingSpec


class TrackerSerializer(DeclaredFields, serializers.ModelSerializer[Tracker]):
    secret = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        max_length=MAX_SECRET,
        help_text="API key of W&B; token of MLflow, or `user:password`. Write-only; empty deletes the stored one.",
    )
    has_secret = serializers.BooleanField(read_only=True, help_text="True if a credential is stored.")

    class Meta:
        model = Tracker
        fields = ["id", "name", "kind", "address", "project", "secret", "has_secret", "created_at", "updated_at"]
        # A used name is refused by the operation, with the same message as on the page.
        extra_kwargs: ClassVar[dict[str, Any]] = {"name": {"validators": []}}


class TrackerViewSet(DestroyModelMixin, SavedRowViewSet, RowViewSet):
    noun = "tracker"
    save_row = staticmethod(save_tracker)
    private_fields = ("secret",)
    queryset = Tracker.objects.all()
    serializer_class = TrackerSerializer
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update", "destroy"], Permission.CONFIGURE),
    }

    perform_destroy = row_deletion(
        delete_tracker, "Delete a tracker with its links to collections and local files. Runs on its server are kept."
    )


@spec_serializer(TrackingSpec)
class TrackingSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Options of a tracked run."""


class TrackedRunSerializer(serializers.ModelSerializer[TrackedRun]):
    kind = serializers.ChoiceField(source="tracker.kind", choices=Tracker.Kind.choices)

    class Meta:
        model = TrackedRun
        fields = [
            "id",
            "collection",
            "tracker",
            "kind",
            "project",
            "name",
            "samples",
            "state",
            "run_id",
            "url",
            "recorded",
            "sent",
            "error",
            "last_sent_at",
            "created_at",
        ]


class TrackedRunViewSet(DestroyModelMixin, RowViewSet):
    noun = "run"
    queryset = TrackedRun.objects.select_related("tracker")
    serializer_class = TrackedRunSerializer
    filterset_class = filter_set(
        collection=IdFilter("collection"),
        tracker=IdFilter("tracker"),
        state=django_filters.ChoiceFilter(choices=TrackedRun.State.choices),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "stop", "resend", "destroy"], Permission.EXPORT),
    }

    @extend_schema(request=TrackingSerializer, responses={201: TrackedRunSerializer})
    def create(self, request: Request) -> Response:
        """Link a collection to a new run. Workers send its metrics, settings and sample rollouts."""
        run = track_collection(TrackingSpec(**self.read_body(TrackingSerializer)), user=self.user)
        return Response(TrackedRunSerializer(run).data, status=HTTPStatus.CREATED)

    stop = row_action("stop", stop_run, "Stop sending. The run at the tracker is kept.")
    resend = row_action(
        "resend",
        resend_run,
        "Continue a finished, stopped or failed run: send the current metrics. No point is doubled.",
    )
    perform_destroy = row_deletion(
        delete_run, "Delete the link and its files on this server. The run at the tracker's server is kept."
    )


@spec_serializer(PushSpec)
class PushSerializer(DeclaredFields, serializers.Serializer[Any]):
    """Options of a push."""

    token = serializers.CharField(
        write_only=True,
        max_length=500,
        help_text="Hugging Face token with write access. Encrypted, and deleted after the push.",
    )


class HubPushSerializer(serializers.ModelSerializer[HubPush]):
    private = serializers.BooleanField(source="is_private")

    class Meta:
        model = HubPush
        fields = [
            "id",
            "export",
            "repository",
            "private",
            "state",
            "url",
            "commit",
            "error",
            "attempts",
            "ended_at",
            "created_at",
        ]


class HubPushViewSet(RowViewSet):
    queryset = HubPush.objects.all()
    serializer_class = HubPushSerializer
    filterset_class = filter_set(
        export=IdFilter("export"), state=django_filters.ChoiceFilter(choices=HubPush.State.choices)
    )
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "create": Permission.EXPORT}

    @extend_schema(request=PushSerializer, responses={201: HubPushSerializer})
    def create(self, request: Request) -> Response:
        """Push an export to the Hugging Face Hub as a dataset with card and manifest. Poll `state`."""
        push = queue_push(PushSpec(**self.read_body(PushSerializer)), user=self.user)
        return Response(HubPushSerializer(push).data, status=HTTPStatus.CREATED)
