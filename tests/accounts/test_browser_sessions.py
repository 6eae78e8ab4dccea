"""Sessions are listed with device, address and last use, and end when they are revoked."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEntry, BrowserSession, Role
from apps.accounts.sessions import browser_sessions, session_activity
from apps.accounts.sessions.browser_sessions import (
    NotYourSession,
    end_session,
    end_sessions_of,
    sessions_of,
    sweep_sessions,
    touch_session,
)
from apps.accounts.sessions.device_names import name_device
from apps.accounts.user_accounts import edit_user
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough secret"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def enter(username="ada", **options):
    client = Client(**options)
    assert client.post("/sign-in/", {"username": username, "password": PASSWORD}).status_code == 302
    return client


def is_in(client):
    return client.get("/account/").status_code == 200


@pytest.fixture
def user():
    return make_user(Role.ENGINEER, username="ada", password=PASSWORD)


@pytest.fixture
def is_touched(monkeypatch):
    monkeypatch.setattr(session_activity, "touch_session", touch_session)


def test_a_session_has_device_address_and_method(user):
    enter(headers={"User-Agent": FIREFOX}, REMOTE_ADDR="192.0.2.7")
    [session] = sessions_of(user)
    assert (session.device, session.address, session.method) == ("Firefox on Linux", "192.0.2.7", "password")


def test_revoking_ends_it_and_no_other(user):
    first, second = enter(), enter()
    session = BrowserSession.objects.get(session_id=first.session.session_key)
    assert second.post(f"/account/sessions/{session.pk}/end/").status_code == 302
    assert (is_in(first), is_in(second)) == (False, True)
    assert AuditEntry.objects.get(action="session.end").detail["owner"] == "ada"


def test_the_account_page_revokes_only_other_sessions(user):
    mine, other = enter(), enter()
    page = mine.get("/account/").text
    ids = {client: BrowserSession.objects.get(session_id=client.session.session_key).pk for client in (mine, other)}
    assert [f"/account/sessions/{ids[client]}/end/" in page for client in (mine, other)] == [False, True]


def test_revoking_ones_own_session_leads_to_signing_in(user):
    client = enter()
    session = BrowserSession.objects.get()
    assert client.post(f"/account/sessions/{session.pk}/end/")["Location"] == "/sign-in/"
    assert (is_in(client), BrowserSession.objects.exists()) == (False, False)


def test_all_others_end_at_once(user):
    clients = [enter() for _ in range(3)]
    clients[0].post("/account/sessions/end/")
    assert [is_in(client) for client in clients] == [True, False, False]


def test_sessions_of_others_are_for_admins(user):
    client = enter()
    session = BrowserSession.objects.get()
    other = make_user(Role.ENGINEER)
    with pytest.raises(NotYourSession):
        end_session(session=session, user=other)
    outsider = Client()
    outsider.force_login(other)
    assert outsider.post(f"/account/sessions/{session.pk}/end/").status_code == 403
    assert is_in(client)
    end_session(session=session, user=make_user(Role.ADMIN))
    assert not is_in(client)


def test_signing_out_a_new_password_and_deactivation_end_sessions(user):
    enter().post("/sign-out/")
    assert BrowserSession.objects.count() == 0
    first, second = enter(), enter()
    first.post("/account/", {"current": PASSWORD, "password": "quite another", "again": "quite another"})
    assert (is_in(first), is_in(second), sessions_of(user).count()) == (True, False, 1)
    user.refresh_from_db()
    edit_user(person=user, role=user.role, is_active=False, by=None)
    assert (is_in(first), Session.objects.count()) == (False, 0)


def test_expired_sessions_are_not_listed(user):
    enter()
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not sessions_of(user).exists()


def test_expired_sessions_are_deleted(user):
    enter()
    enter()
    Session.objects.filter(pk=Session.objects.first().pk).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert (sweep_sessions(), sweep_sessions(), BrowserSession.objects.count()) == (True, False, 1)


def test_the_last_use_is_recorded_once_a_minute(user, is_touched, monkeypatch):
    client = enter()
    long_ago = timezone.now() - timedelta(days=1)
    BrowserSession.objects.update(last_seen_at=long_ago, address="192.0.2.1")
    client.get("/account/")
    assert BrowserSession.objects.get().last_seen_at == long_ago
    monkeypatch.setattr(browser_sessions, "_writes", browser_sessions._LastWrites())
    client.get("/account/")
    session = BrowserSession.objects.get()
    assert (session.last_seen_at > long_ago, session.address, session.method) == (True, "127.0.0.1", "password")


def test_a_session_from_before_the_update_is_recorded_with_its_next_use(user, is_touched):
    client = Client()
    client.force_login(user)
    assert not sessions_of(user).exists()
    client.get("/account/")
    assert sessions_of(user).get().method == "unknown"


def test_requests_without_a_session_record_nothing(user, is_touched):
    Client().get("/sign-in/")
    Client().get("/healthz")
    assert not BrowserSession.objects.exists()


def test_the_operator_lists_and_ends_sessions(user):
    enter(headers={"User-Agent": FIREFOX})
    enter()
    said = StringIO()
    call_command("sessions", "ada", stdout=said)
    assert ("Firefox on Linux" in said.getvalue(), len(said.getvalue().splitlines())) == (True, 2)
    call_command("sessions", "ada", "--end", str(BrowserSession.objects.first().pk))
    assert BrowserSession.objects.count() == 1
    call_command("sessions", "ada", "--end-all")
    assert BrowserSession.objects.count() == 0
    for words in (["nobody"], ["ada", "--end", "7"]):
        with pytest.raises(CommandError):
            call_command("sessions", *words)
    assert end_sessions_of(person=user, by=None) == 0


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605.1 Version/18.0 Safari/605.1",
            "Safari on macOS",
        ),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) CriOS/140.0 Safari/604.1", "Chrome on iPhone"),
        ("curl/8.0", "Unknown browser"),
        ("", "Unknown browser"),
    ],
)
def test_devices_are_named_by_browser_and_system(agent, name):
    assert name_device(agent) == name
