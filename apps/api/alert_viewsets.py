"""Subscriptions to alerts, and the log of their deliveries. Address and secret are write-only."""

from typing import Any, ClassVar

import django_filters
from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin

from apps.accounts.permissions import Permission
from apps.alerts.alert_delivery import replay_delivery
from apps.alerts.models import EVENT_CHOICES, Delivery, EventKind, Subscription
from apps.alerts.subscription_changes import MAX_ADDRESS, delete_subscription, save_subscription, send_test
from apps.api.framework.base_viewsets import RowViewSet, SavedRowViewSet, row_action, row_deletion
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter, filter_set


class SubscriptionSerializer(DeclaredFields, serializers.ModelSerializer[Subscription]):
    address = serializers.CharField(
        write_only=True,
        required=False,
        max_length=MAX_ADDRESS,
        help_text="URL, or e-mail address. Write-only; needed for a new subscription and another channel.",
    )
    secret = serializers.CharField(
        write_only=True,
        required=False,
        max_length=200,
        help_text="Signing secret of a webhook: `whsec_` and 24 to 64 bytes in Base64. Write-only.",
    )
    event_kinds = serializers.ListField(child=serializers.ChoiceField(choices=EVENT_CHOICES), min_length=1)

    class Meta:
        model = Subscription
        fields = [
            "id",
            "name",
            "channel",
            "address",
            "address_hint",
            "secret",
            "event_kinds",
            "min_failure_share",
            "min_reward_change",
            "is_enabled",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["address_hint"]
        # A used name is refused by the operation, with the same message as on the page.
        extra_kwargs: ClassVar[dict[str, Any]] = {"name": {"validators": []}}


class SubscriptionViewSet(DestroyModelMixin, SavedRowViewSet, RowViewSet):
    noun = "subscription"
    save_row = staticmethod(save_subscription)
    private_fields = ("address", "secret")
    queryset = Subscription.objects.all()
    serializer_class = SubscriptionSerializer
    permissions = dict.fromkeys(
        ["list", "retrieve", "create", "update", "partial_update", "destroy", "test"], Permission.CONFIGURE
    )

    perform_destroy = row_deletion(delete_subscription, "Delete a subscription with its delivery log.")
    test = row_action("test", send_test, "Queue a test event for this subscription. A worker sends it within seconds.")


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    event = serializers.UUIDField(source="event_id", help_text="The `webhook-id`, the same for all attempts.")
    kind = serializers.ChoiceField(source="event.kind", choices=EventKind.choices)
    text = serializers.CharField(source="event.text")
    payload = serializers.DictField(source="event.data", help_text="Further members of `data` in the webhook.")
    created_at = serializers.DateTimeField(source="event.created_at")

    class Meta:
        model = Delivery
        fields = [
            "id",
            "subscription",
            "event",
            "kind",
            "text",
            "payload",
            "state",
            "attempts",
            "next_attempt_at",
            "status",
            "error",
            "delivered_at",
            "created_at",
        ]


class DeliveryViewSet(RowViewSet):
    noun = "delivery"
    queryset = Delivery.objects.select_related("event", "subscription")
    serializer_class = DeliverySerializer
    filterset_class = filter_set(
        subscription=IdFilter("subscription"),
        state=django_filters.ChoiceFilter(choices=Delivery.State.choices),
        kind=django_filters.ChoiceFilter(field_name="event__kind", choices=EventKind.choices),
    )
    permissions = dict.fromkeys(["list", "retrieve", "replay"], Permission.CONFIGURE)

    replay = row_action(
        "replay", replay_delivery, "Send a delivered or failed delivery again, with the same `webhook-id`."
    )
