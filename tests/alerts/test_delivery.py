"""Each event reaches its receiver once by id: after outages, with several workers, and after a killed worker."""

import threading
import time
from datetime import timedelta

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone
from standardwebhooks import Webhook, WebhookVerificationError

from apps.accounts.models import AuditEntry
from apps.alerts import alert_delivery, event_outbox
from apps.alerts.alert_delivery import AlertRefused, deliver_alerts, replay_delivery
from apps.alerts.event_outbox import record_event
from apps.alerts.models import Delivery, Event, EventKind
from tests.alerts.receiver import SECRET, find_port, receive, subscribe

pytestmark = pytest.mark.django_db(transaction=True)
CLOCK = 1000
"""Waits are this many times shorter."""


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.PUBLIC_URL = "https://gym.example.org"


@pytest.fixture
def fast_clock(monkeypatch):
    for name in ("FIRST_WAIT", "LONGEST_WAIT", "GIVE_UP_AFTER", "LEASE"):
        for module in (alert_delivery, event_outbox):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name) / CLOCK)


def announce(number: int = 1) -> None:
    record_event(EventKind.EXPORT_READY, key=str(number), text=f"Export #{number}", page=("home",), rows=number)


def deliver_until_ended(seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while Delivery.objects.filter(state="pending").exists() and time.monotonic() < until:
        if not deliver_alerts():
            time.sleep(0.01)


def make_due() -> None:
    Delivery.objects.filter(state="pending").update(next_attempt_at=timezone.now())


def test_a_receiver_that_is_down_for_ten_minutes_gets_each_event_once(fast_clock):
    port = find_port()
    subscribe(f"http://127.0.0.1:{port}/hook")
    for number in range(5):
        announce(number)
        announce(number)
    down_until = time.monotonic() + 600 / CLOCK
    while time.monotonic() < down_until:
        deliver_alerts()
        time.sleep(0.01)
    assert set(Delivery.objects.values_list("state", flat=True)) == {"pending"}
    assert all(attempts > 1 for attempts in Delivery.objects.values_list("attempts", flat=True))
    with receive(port) as (_, requests):
        deliver_until_ended()
    received = [request.event_id for request in requests]
    assert sorted(received) == sorted(str(pk) for pk in Event.objects.values_list("pk", flat=True))
    assert (len(received), set(Delivery.objects.values_list("state", flat=True))) == (5, {"delivered"})


def test_the_signature_verifies_with_the_reference_package():
    with receive() as (url, requests):
        subscribe(url)
        announce(7)
        deliver_alerts()
    (request,) = requests
    verified = Webhook(SECRET).verify(request.body, request.headers)
    assert verified["type"] == "export.ready"
    assert verified["data"] == {"text": "Export #7", "url": "https://gym.example.org/", "rows": 7}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.replace(b"7", b"8"), request.headers)


def test_two_workers_deliver_each_event_once():
    with receive() as (url, requests):
        subscribe(url)
        for number in range(40):
            announce(number)
        start = threading.Barrier(2)

        def work() -> None:
            start.wait()
            while deliver_alerts():
                pass
            connection.close()

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len({request.event_id for request in requests}) == len(requests) == 40
    assert set(Delivery.objects.values_list("state", "attempts")) == {("delivered", 1)}


def test_a_worker_that_dies_after_sending_sends_the_same_id_again(monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with receive() as (url, requests):
        subscribe(url)
        announce()
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(alert_delivery, "_store", die)
            deliver_alerts()
        assert deliver_alerts() is False  # the lease of the dead worker
        make_due()
        deliver_alerts()
    assert len(requests) == 2
    assert requests[0].event_id == requests[1].event_id
    assert requests[0].body == requests[1].body
    assert Delivery.objects.values_list("state", "attempts").get() == ("delivered", 2)


def test_a_late_result_of_an_expired_claim_is_ignored(monkeypatch):
    with receive() as (url, _):
        subscribe(url)
        announce()
        (late,) = alert_delivery._claim_due()
        make_due()
        deliver_alerts()
    alert_delivery._store(late, alert_delivery.Outcome(500, "late"))
    assert Delivery.objects.values_list("state", "error").get() == ("delivered", "")


def test_a_failing_delivery_gives_up_after_a_day_and_can_be_replayed():
    with receive(status=500) as (url, requests):
        subscribe(url)
        announce()
        deliver_alerts()
        delivery = Delivery.objects.get()
        assert (delivery.state, delivery.status) == ("pending", 500)
        with pytest.raises(AlertRefused):
            replay_delivery(delivery=delivery)
        wait = (delivery.next_attempt_at - timezone.now()).total_seconds()
        assert 3 < wait <= 6
        now = timezone.now()
        Delivery.objects.update(retry_until=now, next_attempt_at=now)
        deliver_alerts()
        delivery.refresh_from_db()
        assert (delivery.state, "500" in delivery.error) == ("failed", True)
        make_due()
        assert deliver_alerts() is False
        port = int(url.split(":")[2].split("/")[0])
    with receive(port) as (_, replayed):
        replay_delivery(delivery=delivery)
        deliver_alerts()
    assert [request.event_id for request in replayed] == [requests[0].event_id]
    delivery.refresh_from_db()
    assert (delivery.state, delivery.error, delivery.attempts) == ("delivered", "", 3)
    assert AuditEntry.objects.filter(action="alert.replay").count() == 1


def test_a_delivery_whose_workers_die_is_not_sent_forever(monkeypatch):
    with receive() as (url, requests):
        subscribe(url)
        announce()
        monkeypatch.setattr(alert_delivery, "LEASE", timedelta(milliseconds=1))
        Delivery.objects.update(retry_until=timezone.now())
        alert_delivery._claim_due()
        time.sleep(0.01)
        assert deliver_alerts() is False
    assert Delivery.objects.values_list("state", "attempts").get() == ("failed", 1)
    assert not requests


def test_waits_double_up_to_an_hour():
    now = timezone.now()
    for failed_for, low, high in ((0, 4, 6), (100, 80, 120), (10_000, 2_880, 4_320)):
        until = now - timedelta(seconds=failed_for) + event_outbox.GIVE_UP_AFTER
        wait = alert_delivery._wait(Delivery(retry_until=until), now).total_seconds()
        assert low <= wait <= high


def test_a_receiver_that_is_gone_is_not_called_again():
    with receive(status=410) as (url, _):
        subscribe(url)
        announce()
        deliver_alerts()
    assert Delivery.objects.values_list("state", "status").get() == ("failed", 410)


def test_a_private_address_is_not_called(settings):
    with receive() as (url, requests):
        subscribe(url)
        announce()
        settings.OUTBOUND_ALLOW = []
        deliver_alerts()
    state, error = Delivery.objects.values_list("state", "error").get()
    assert (state, requests) == ("failed", [])
    assert "GYMWEB_OUTBOUND_ALLOW" in error


def test_errors_do_not_contain_the_path_of_the_address():
    subscribe(f"http://127.0.0.1:{find_port()}/services/T0/private-token", "slack")
    announce()
    deliver_alerts()
    error = Delivery.objects.get().error
    assert ("private-token" in error, "127.0.0.1" in error) == (False, True)


def test_slack_gets_escaped_text():
    with receive() as (url, requests):
        subscribe(url, "slack")
        record_event(EventKind.EXPORT_READY, key="1", text="<b> & co", page=("home",))
        deliver_alerts()
    (request,) = requests
    assert request.json == {"text": "&lt;b&gt; &amp; co\nhttps://gym.example.org/"}
    assert "webhook-signature" not in request.headers


def test_an_email_has_the_sentence_and_the_link(settings):
    settings.EMAIL_HOST = "mail.example.org"
    subscribe("team@example.org", "email")
    announce(3)
    deliver_alerts()
    (message,) = mail.outbox
    assert (message.to, message.subject) == (["team@example.org"], "GymWeb: Export #3")
    assert "https://gym.example.org/" in message.body
    assert str(Event.objects.get().pk) in message.extra_headers["Message-ID"]


def test_a_mail_server_that_fails_is_retried(settings, monkeypatch):
    settings.EMAIL_HOST = "mail.example.org"
    subscribe("team@example.org", "email")
    announce()

    def refuse(message: object) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr("django.core.mail.EmailMessage.send", refuse)
    deliver_alerts()
    assert Delivery.objects.values_list("state", "error").get() == ("pending", "refused")


def test_disabled_subscriptions_get_nothing():
    with receive() as (url, requests):
        subscription = subscribe(url)
        announce(1)
        subscription.is_enabled = False
        subscription.save()
        announce(2)
        deliver_alerts()
        assert (requests, Event.objects.count()) == ([], 1)
