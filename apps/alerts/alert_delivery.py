"""Send pending deliveries in the background, and replay them.

A worker claims a delivery by a conditional update that also counts the attempt. If the worker dies, the claim expires
and another worker sends the same event id again. Only the latest claim may store a result.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F
from django.utils import timezone
from yarl import URL

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.alerts.alert_messages import email_message, slack_body, webhook_body
from apps.alerts.event_outbox import GIVE_UP_AFTER
from apps.alerts.models import Delivery, Event, Subscription
from apps.alerts.webhook_signatures import sign
from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundRedirectRefused
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.errors import PolicyError
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line
from apps.policies.policy_clients import open_outbound
from apps.policies.secrets import decrypt_secret

logger = logging.getLogger(__name__)

BATCH = 16
SEND_SECONDS = 15.0
LEASE = timedelta(minutes=2)
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)
MAX_REPLY_BYTES = 1024**2
HTTP_GONE = 410


class AlertRefused(Refusal, status=409, code="alert-refused"):
    """Raised if a delivery cannot be replayed, or a subscription cannot be tested."""


class Outcome(NamedTuple):
    """The result of an attempt. `error` is empty on success; `is_final` means that retrying does not help."""

    status: int | None = None
    error: str = ""
    is_final: bool = False


class _DecryptedDelivery(NamedTuple):
    """A delivery with its decrypted address and secret."""

    event: Event
    channel: str
    address: str
    secret: str


@background_job(
    thread="alerts", waiting=lambda: Delivery.objects.filter(state=Delivery.State.PENDING), on_full_disk=True
)
def deliver_alerts() -> bool:
    """Background job: send the deliveries that are due, concurrently. Return True if there were any."""
    claimed = _claim_due()
    if claimed:
        for delivery, outcome in zip(claimed, asyncio.run(_send_all(claimed)), strict=True):
            _store(delivery, outcome)
    return bool(claimed)


def replay_delivery(*, delivery: Delivery, user: User | None = None) -> Delivery:
    """Send a delivered or failed delivery again, with the same event id. Raise AlertRefused while it is pending."""
    now = timezone.now()
    ended = Delivery.objects.filter(pk=delivery.pk).exclude(state=Delivery.State.PENDING)
    if not ended.update(
        state=Delivery.State.PENDING, delivered_at=None, next_attempt_at=now, retry_until=now + GIVE_UP_AFTER
    ):
        raise AlertRefused("This delivery is pending: wait for its result.")
    delivery.refresh_from_db()
    record(user=user, action="alert.replay", target=f"delivery {delivery.pk}", subscription=delivery.subscription.name)
    return delivery


def _claim_due() -> list[Delivery]:
    now = timezone.now()
    pending = Delivery.objects.filter(state=Delivery.State.PENDING)
    # Only a claim sets a time after the last retry: its worker stopped before it stored a result.
    interrupted = pending.filter(next_attempt_at__lte=now, next_attempt_at__gt=F("retry_until"))
    interrupted.update(state=Delivery.State.FAILED, error="The worker stopped while sending this delivery.")
    due = pending.filter(next_attempt_at__lte=now, subscription__is_enabled=True)
    claimed = []
    for delivery in due.select_related("event", "subscription").order_by("next_attempt_at", "pk")[:BATCH]:
        seen = pending.filter(pk=delivery.pk, attempts=delivery.attempts, next_attempt_at=delivery.next_attempt_at)
        if seen.update(attempts=F("attempts") + 1, next_attempt_at=now + LEASE):
            delivery.attempts += 1
            claimed.append(delivery)
    return claimed


async def _send_all(claimed: Sequence[Delivery]) -> list[Outcome]:
    outbound = open_outbound()
    try:
        return await asyncio.gather(*(_send(delivery, outbound) for delivery in claimed))
    finally:
        await outbound.close()


async def _send(delivery: Delivery, outbound: Outbound) -> Outcome:
    try:
        decrypted = _decrypt(delivery.event, delivery.subscription)
    except PolicyError:
        return Outcome(error="GYMWEB_SECRET_KEY has changed. Enter address and secret again.", is_final=True)
    try:
        async with asyncio.timeout(SEND_SECONDS):
            if decrypted.channel == Subscription.Channel.EMAIL:
                await asyncio.to_thread(email_message(decrypted.event, decrypted.address).send)
                return Outcome()
            return await _post(decrypted, outbound)
    except OutboundRedirectRefused as error:
        # The address is allowed, and may answer without a redirect later.
        return Outcome(error=_hide_path(str(error), decrypted))
    except OutboundRefused as error:
        return Outcome(error=_hide_path(str(error), decrypted), is_final=True)
    except (OutboundFailed, OSError, ValueError) as error:
        return Outcome(error=_hide_path(str(error), decrypted) or f"No reply within {SEND_SECONDS:g} s.")


def _decrypt(event: Event, subscription: Subscription) -> _DecryptedDelivery:
    secret = decrypt_secret(subscription.secret_encrypted) if subscription.secret_encrypted else ""
    return _DecryptedDelivery(event, subscription.channel, decrypt_secret(subscription.address_encrypted), secret)


async def _post(decrypted: _DecryptedDelivery, outbound: Outbound) -> Outcome:
    headers = {"Content-Type": "application/json"}
    if decrypted.channel == Subscription.Channel.WEBHOOK:
        body = webhook_body(decrypted.event)
        headers |= sign(secret=decrypted.secret, event_id=str(decrypted.event.id), body=body, now=timezone.now())
    else:
        body = slack_body(decrypted.event)
    reply = await outbound.request(
        "POST", decrypted.address, body=body, headers=headers, timeout=SEND_SECONDS, max_bytes=MAX_REPLY_BYTES
    )
    if 200 <= reply.status < 300:
        return Outcome(reply.status)
    return Outcome(reply.status, f"The receiver returned {reply.status}.", is_final=reply.status == HTTP_GONE)


def _hide_path(message: str, decrypted: _DecryptedDelivery) -> str:
    """Remove the path of the address, which may be a token."""
    path = URL(decrypted.address).raw_path if decrypted.channel != Subscription.Channel.EMAIL else ""
    return message.replace(path, "/…") if len(path) > 1 else message


def _store(delivery: Delivery, outcome: Outcome) -> None:
    now = timezone.now()
    changes: dict[str, object] = {"status": outcome.status, "error": clean_line(outcome.error, 500)}
    if not outcome.error:
        changes |= {"state": Delivery.State.DELIVERED, "delivered_at": now}
    elif outcome.is_final or now >= delivery.retry_until:
        changes["state"] = Delivery.State.FAILED
    else:
        changes["next_attempt_at"] = min(now + _wait(delivery, now), delivery.retry_until)
    if outcome.error:
        logger.warning("delivery %d failed, attempt %d: %s", delivery.pk, delivery.attempts, changes["error"])
    claimed = Delivery.objects.filter(pk=delivery.pk, attempts=delivery.attempts, state=Delivery.State.PENDING)
    claimed.update(**changes)


def _wait(delivery: Delivery, now: datetime) -> timedelta:
    """Return the time until the next attempt: about the time since the delivery was recorded or replayed.

    So the waits double.
    """
    failing = now - (delivery.retry_until - GIVE_UP_AFTER)
    return min(max(failing, FIRST_WAIT), LONGEST_WAIT) * random.uniform(0.8, 1.2)
