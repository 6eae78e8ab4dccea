"""Record events for the subscriptions that want them, in the transaction of the change that causes them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from apps.alerts.models import Delivery, Event, EventKind, Subscription
from apps.gym.storable import clean_line

GIVE_UP_AFTER = timedelta(hours=24)
"""How long a delivery is retried."""
KEEP_EVENTS = timedelta(days=30)


def find_subscriptions(kind: EventKind) -> list[Subscription]:
    """Return the enabled subscriptions of this kind of event."""
    return [one for one in Subscription.objects.filter(is_enabled=True) if kind in one.event_kinds]


def record_event(
    kind: EventKind,
    *,
    key: str,
    text: str,
    page: tuple[str, *tuple[object, ...]],
    wants: Callable[[Subscription], bool] = lambda subscription: True,
    **data: Any,
) -> None:
    """Record an event once by its natural key, with a delivery for each subscription that `wants` it.

    Without subscriptions, nothing is recorded. `page` is the URL name of its page on the dashboard, and the arguments
    of the URL. `text` and `data` leave this machine: pass names and numbers, no messages and no content of traces.
    """
    if wanting := [one for one in find_subscriptions(kind) if wants(one)]:
        store_event(kind, key=key, text=text, page=page, data=data, subscriptions=wanting)


def store_event(
    kind: EventKind,
    *,
    key: str,
    text: str,
    page: tuple[str, *tuple[object, ...]],
    data: dict[str, Any],
    subscriptions: list[Subscription],
) -> None:
    """Store an event and its deliveries, unless an event with this key exists."""
    name, *given = page
    fields = {
        "kind": kind.value,
        "text": clean_line(text, 500),
        "path": reverse(f"dashboard:{name}", args=given),
        "data": data,
    }
    with transaction.atomic():
        event, is_new = Event.objects.get_or_create(key=f"{kind.value} {key}", defaults=fields)
        if is_new:
            until = timezone.now() + GIVE_UP_AFTER
            Delivery.objects.bulk_create(
                Delivery(event=event, subscription=one, retry_until=until) for one in subscriptions
            )


def delete_old_events() -> None:
    """Delete events and their deliveries after KEEP_EVENTS."""
    Event.objects.filter(created_at__lt=timezone.now() - KEEP_EVENTS).delete()
