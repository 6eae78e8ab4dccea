"""Destinations of exported traces, and sends to them. URL and headers are write-only."""

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
from apps.exports.models import TraceDestination, TraceSend
from apps.exports.trace_sends.destination_changes import MAX_HEADER_TEXT, MAX_URL, delete_destination, save_destination
from apps.exports.trace_sends.send_orders import (
    TraceSendOrder,
    cancel_trace_send,
    queue_trace_send,
    resume_trace_send,
)


class TraceDestinationSerializer(DeclaredFields, serializers.ModelSerializer[TraceDestination]):
    url = serializers.CharField(
        write_only=True,
        required=False,
        max_length=MAX_URL,
        help_text="URL that takes OTLP/HTTP traces, often ending in `/v1/traces`. Write-only; needed at creation.",
    )
    headers = serializers.DictField(
        child=serializers.CharField(max_length=MAX_HEADER_TEXT),
        write_only=True,
        required=False,
        help_text="Headers of each request, for example `Authorization`. Write-only; replaces all stored headers.",
    )
    header_names = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TraceDestination
        fields = ["id", "name", "url", "url_hint", "headers", "header_names", "created_at", "updated_at"]
        read_only_fields = ["url_hint"]
        # A used name is refused by the operation, with the same message as on the page.
        extra_kwargs: ClassVar[dict[str, Any]] = {"name": {"validators": []}}


class TraceDestinationViewSet(DestroyModelMixin, SavedRowViewSet, RowViewSet):
    noun = "destination"
    save_row = staticmethod(save_destination)
    private_fields = ("url", "headers")
    queryset = TraceDestination.objects.all()
    serializer_class = TraceDestinationSerializer
    permissions = dict.fromkeys(
        ["list", "retrieve", "create", "update", "partial_update", "destroy"], Permission.CONFIGURE
    )

    perform_destroy = row_deletion(
        delete_destination, "Delete a destination with the log of its sends. Unfinished sends stop."
    )


class TraceSendSerializer(serializers.ModelSerializer[TraceSend]):
    class Meta:
        model = TraceSend
        fields = [
            "id",
            "export",
            "destination",
            "state",
            "total",
            "sent",
            "spans",
            "rejected_spans",
            "message",
            "retry_at",
            "created_at",
            "finished_at",
        ]


@spec_serializer(TraceSendOrder)
class TraceSendOrderSerializer(DeclaredFields, serializers.Serializer[Any]):
    """An export to send, and its receiver."""


class TraceSendViewSet(RowViewSet):
    noun = "send"
    queryset = TraceSend.objects.select_related("destination")
    serializer_class = TraceSendSerializer
    filterset_class = filter_set(
        export=IdFilter("export"),
        destination=IdFilter("destination"),
        state=django_filters.ChoiceFilter(choices=TraceSend.State.choices),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "cancel", "resume"], Permission.EXPORT),
    }
    problems = {"create": {409}, "cancel": {409}, "resume": {409}}

    @extend_schema(request=TraceSendOrderSerializer, responses={201: TraceSendSerializer})
    def create(self, request: Request) -> Response:
        """Send the traces of an export to a destination, in the background. Poll the returned send.

        The ids of traces and spans never change, so sending again replaces the traces at most receivers.
        """
        send = queue_trace_send(TraceSendOrder(**self.read_body(TraceSendOrderSerializer)), user=self.user)
        return Response(TraceSendSerializer(send).data, status=HTTPStatus.CREATED)

    cancel = row_action(
        "cancel", cancel_trace_send, "Cancel a send. Traces that were already sent stay at the receiver."
    )
    resume = row_action(
        "resume", resume_trace_send, "Continue a failed or cancelled send after the last trace that was sent."
    )
