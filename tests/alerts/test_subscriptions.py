"""Subscriptions: what is refused, what is encrypted, and what the audit log shows."""

import json

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from apps.accounts.models import AuditEntry
from apps.alerts.alert_delivery import AlertRefused
from apps.alerts.models import Delivery, Subscription
from apps.alerts.subscription_changes import delete_subscription, save_subscription, send_test
from apps.policies.secrets import decrypt_secret
from gymweb.environment_variables import Environment, SettingRefused
from tests.alerts.receiver import ALL_EVENTS, SECRET, subscribe
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PUBLIC = "https://alerts.example.com/hook/path-token"


def save(subscription, address=None, secret=None):
    return save_subscription(subscription=subscription, address=address, secret=secret, user=make_user())


@pytest.mark.parametrize(
    ("fields", "address", "secret", "field"),
    [
        ({}, "http://127.0.0.1:9/hook", SECRET, "address"),
        ({}, "http://169.254.169.254/latest", SECRET, "address"),
        ({}, "ftp://example.com", SECRET, "address"),
        ({}, "https://user:word@example.com/", SECRET, "address"),
        ({}, "", SECRET, "address"),
        ({}, None, SECRET, "address"),
        ({}, PUBLIC, None, "secret"),
        ({}, PUBLIC, "whsec_short", "secret"),
        ({}, PUBLIC, SECRET.removeprefix("whsec_"), "secret"),
        ({"channel": "slack"}, PUBLIC, SECRET, "secret"),
        ({"channel": "email"}, "no address", None, "address"),
        ({"channel": "pigeon"}, PUBLIC, None, "channel"),
        ({"event_kinds": []}, PUBLIC, SECRET, "event_kinds"),
        ({"event_kinds": ["test"]}, PUBLIC, SECRET, "event_kinds"),
        ({"event_kinds": ["disk.low", "disk.low"]}, PUBLIC, SECRET, "event_kinds"),
        ({"min_failure_share": 0.0}, PUBLIC, SECRET, "min_failure_share"),
        ({"min_failure_share": 1.5}, PUBLIC, SECRET, "min_failure_share"),
        ({"min_reward_change": -1.0}, PUBLIC, SECRET, "min_reward_change"),
        ({"name": ""}, PUBLIC, SECRET, "name"),
    ],
)
def test_invalid_subscriptions_are_refused_by_field(settings, fields, address, secret, field):
    settings.EMAIL_HOST = "mail.example.org"
    subscription = Subscription(**{"name": "Team", "event_kinds": ALL_EVENTS, **fields})
    with pytest.raises(ValidationError) as refused:
        save(subscription, address, secret)
    assert list(refused.value.message_dict) == [field]
    assert Subscription.objects.count() == 0


def test_email_needs_a_mail_server(settings):
    settings.EMAIL_HOST = ""
    with pytest.raises(ValidationError) as refused:
        save(Subscription(name="Team", channel="email", event_kinds=ALL_EVENTS), "team@example.org")
    assert list(refused.value.message_dict) == ["channel"]


def test_two_subscriptions_cannot_have_the_same_name():
    subscribe(PUBLIC, name="Team")
    with pytest.raises(ValidationError) as refused:
        subscribe(PUBLIC, name="Team")
    assert list(refused.value.message_dict) == ["name"]


def test_address_and_secret_are_encrypted_and_kept_until_replaced():
    subscription = subscribe(PUBLIC)
    assert subscription.address_hint == "https://alerts.example.com/…"
    save(subscription)
    subscription.refresh_from_db()
    assert decrypt_secret(subscription.address_encrypted) == PUBLIC
    assert decrypt_secret(subscription.secret_encrypted) == SECRET
    save(subscription, "https://other.example.com/")
    assert decrypt_secret(subscription.address_encrypted) == "https://other.example.com/"
    stored = json.dumps(list(Subscription.objects.values()), default=str)
    logged = json.dumps(list(AuditEntry.objects.values()), default=str)
    for private in ("path-token", SECRET):
        assert (private in stored, private in logged) == (False, False)
    assert AuditEntry.objects.filter(action="alert.change").count() == 2


def test_another_channel_needs_another_address_and_drops_the_secret():
    subscription = subscribe(PUBLIC)
    subscription.channel = "slack"
    with pytest.raises(ValidationError) as refused:
        save(subscription)
    assert list(refused.value.message_dict) == ["address"]
    save(subscription, "https://hooks.example.com/T0")
    assert subscription.secret_encrypted == ""


def test_the_database_refuses_a_webhook_without_a_secret():
    subscription = subscribe(PUBLIC)
    with pytest.raises(IntegrityError), transaction.atomic():
        Subscription.objects.filter(pk=subscription.pk).update(secret_encrypted="")


def test_a_test_goes_to_one_subscription():
    subscription, other = subscribe(PUBLIC), subscribe(PUBLIC)
    send_test(subscription=subscription)
    send_test(subscription=subscription)
    assert list(Delivery.objects.values_list("subscription", "event__kind")) == [(subscription.pk, "test")] * 2
    other.is_enabled = False
    with pytest.raises(AlertRefused):
        send_test(subscription=other)


def test_deleting_a_subscription_deletes_its_deliveries():
    subscription = send_test(subscription=subscribe(PUBLIC))
    delete_subscription(subscription=subscription)
    assert (Delivery.objects.count(), AuditEntry.objects.filter(action="alert.delete").count()) == (0, 1)


def test_the_mail_server_is_read_from_a_url():
    read = Environment({"A": "smtp+tls://me%40example.org:p%2Fw@mail.example.org"}).email("A")
    assert read == {
        "EMAIL_HOST": "mail.example.org",
        "EMAIL_PORT": 587,
        "EMAIL_HOST_USER": "me@example.org",
        "EMAIL_HOST_PASSWORD": "p/w",
        "EMAIL_USE_TLS": True,
        "EMAIL_USE_SSL": False,
    }
    assert Environment({}).email("A")["EMAIL_HOST"] == ""
    assert Environment({"A": "smtps://mail.example.org:1465"}).email("A")["EMAIL_PORT"] == 1465


@pytest.mark.parametrize("url", ["mail.example.org", "smtp://", "imap://me:hidden@mail", "smtp://mail:port"])
def test_other_urls_are_no_mail_server(url):
    with pytest.raises(SettingRefused) as refused:
        Environment({"GYMWEB_EMAIL_URL": url}).email("GYMWEB_EMAIL_URL")
    assert "hidden" not in str(refused.value)
