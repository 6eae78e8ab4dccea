"""Save, delete and test subscriptions. Address and secret are write-only."""

import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from yarl import URL

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.alerts.alert_delivery import AlertRefused
from apps.alerts.event_outbox import store_event
from apps.alerts.models import EventKind, Subscription
from apps.alerts.webhook_signatures import find_secret_problem
from apps.policies.row_checks import check_row, find_url_problem, lock_stored, save_row
from apps.policies.secrets import encrypt_secret

Channel = Subscription.Channel
MAX_ADDRESS = 2_000


def save_subscription(
    *, subscription: Subscription, address: str | None, secret: str | None, user: User | None = None
) -> Subscription:
    """Create or change a subscription. With None, the stored address or secret is kept.

    Raise ValidationError by field.
    """
    address, secret = (value.strip() if value is not None else None for value in (address, secret))
    with transaction.atomic():
        stored = lock_stored(subscription)
        check_row(subscription, _find_problems(subscription, stored, address, secret), validate_constraints=False)
        if address is not None:
            subscription.address_encrypted, subscription.address_hint = encrypt_secret(address), _hint(address)
        if subscription.channel != Channel.WEBHOOK:
            subscription.secret_encrypted = ""
        elif secret is not None:
            subscription.secret_encrypted = encrypt_secret(secret)
        if stored is None:
            subscription.created_by = user
        save_row(
            subscription,
            stored,
            user=user,
            noun="alert",
            target=subscription.name,
            address=subscription.address_hint,
            secret_changed=secret is not None,
        )
    return subscription


def _find_problems(
    subscription: Subscription, stored: Subscription | None, address: str | None, secret: str | None
) -> dict[str, list[str]]:
    is_webhook = subscription.channel == Channel.WEBHOOK
    needs_address = stored is None or stored.channel != subscription.channel
    needs_secret = is_webhook and (stored is None or not stored.secret_encrypted)
    found = {
        "address": "Enter an address." if address is None and needs_address else "",
        "secret": "Enter a secret." if secret is None and needs_secret else "",
        "channel": "",
    }
    if address is not None:
        found["address"] = _address_problem(subscription.channel, address)
    if secret is not None:
        found["secret"] = find_secret_problem(secret) if is_webhook else "Only webhooks have a secret."
    if subscription.channel == Channel.EMAIL and not settings.EMAIL_HOST:
        found["channel"] = "E-mail is off. The operator enables it with GYMWEB_EMAIL_URL."
    return {field: [problem] for field, problem in found.items() if problem}


def _address_problem(channel: str, address: str) -> str:
    if len(address) > MAX_ADDRESS:
        return f"Give at most {MAX_ADDRESS:,} characters."
    if channel != Channel.EMAIL:
        return find_url_problem(address)
    try:
        validate_email(address)
    except ValidationError as error:
        return error.messages[0]
    return ""


def _hint(address: str) -> str:
    """Return a URL without path and query, and an e-mail address unchanged."""
    url = URL(address)
    return (f"{url.origin()}/…" if url.scheme in ("http", "https") else address)[:300]


def delete_subscription(*, subscription: Subscription, user: User | None = None) -> None:
    """Delete a subscription with its deliveries."""
    with transaction.atomic():
        record(user=user, action="alert.delete", target=subscription.name, before=describe(subscription))
        subscription.delete()


def send_test(*, subscription: Subscription, user: User | None = None) -> Subscription:
    """Queue a test event for this subscription. Raise AlertRefused if it is disabled."""
    if not subscription.is_enabled:
        raise AlertRefused("This subscription is disabled. Enable it to send a test.")
    with transaction.atomic():
        store_event(
            EventKind.TEST,
            key=str(uuid.uuid4()),
            text=f"Test of the subscription {subscription.name}",
            page=("alert_detail", subscription.pk),
            data={"subscription": subscription.name},
            subscriptions=[subscription],
        )
        record(user=user, action="alert.test", target=subscription.name)
    return subscription
