"""Invitations, sessions and second factors over the API, in a session."""

import time

import pyotp
import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import BrowserSession, Invitation, Role, User
from apps.accounts.second_factor.authenticator_codes import confirm_setup, needs_code, read_secret, start_setup
from tests.api.conftest import client_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough secret"


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(make_user(Role.ADMIN, username="ada"))
    return client


def enter(user: User) -> Client:
    client = Client()
    client.post("/sign-in/", {"username": user.username, "password": PASSWORD})
    return client


def test_an_invitation_is_made_listed_and_revoked(admin):
    body = {"role": "annotator", "email": "ida@example.org", "days": 3}
    reply = admin.post("/api/v1/invitations/", body, content_type="application/json")
    assert (reply.status_code, reply["Cache-Control"]) == (201, "no-store")
    made, link = reply.json()["invitation"], reply.json()["link"].removeprefix("http://testserver")
    assert (made["role"], made["state"], made["created_by"]) == ("annotator", "open", "ada")
    assert Client().get(link).status_code == 200
    [listed] = admin.get("/api/v1/invitations/").json()["results"]
    assert (listed["id"], "token_hash" in listed, link in str(listed)) == (made["id"], False, False)
    assert admin.delete(f"/api/v1/invitations/{made['id']}/").json()["state"] == "revoked"
    assert Client().get(link).status_code == 410


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "owner"}, "/role"),
        ({"days": 31}, "/days"),
        ({"email": "nowhere"}, "/email"),
        ({"token": "x"}, "/token"),
    ],
)
def test_an_invalid_invitation_is_refused_at_its_field(admin, body, pointer):
    reply = admin.post("/api/v1/invitations/", body, content_type="application/json")
    assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (400, [pointer])
    assert not Invitation.objects.exists()


def test_own_sessions_are_listed_and_ended():
    user = make_user(password=PASSWORD)
    first, second = enter(user), enter(user)
    listed = first.get("/api/v1/me/sessions/").json()["results"]
    assert sorted(one["is_current"] for one in listed) == [False, True]
    [other] = [one["id"] for one in listed if not one["is_current"]]
    assert first.delete(f"/api/v1/me/sessions/{other}/").status_code == 204
    assert (second.get("/account/").status_code, first.get("/account/").status_code) == (302, 200)


def test_sessions_of_others_are_not_found(admin):
    enter(make_user(password=PASSWORD))
    session = BrowserSession.objects.get()
    assert admin.delete(f"/api/v1/me/sessions/{session.pk}/").status_code == 404


def test_an_admin_ends_sessions_and_turns_off_a_second_factor(admin):
    user = make_user(password=PASSWORD)
    browser = enter(user)
    reply = admin.post(f"/api/v1/people/{user.pk}/end_sessions/")
    assert (reply.json(), browser.get("/account/").status_code) == ({"ended": 1}, 302)
    code = pyotp.TOTP(read_secret(start_setup(user=user))).at(time.time())
    confirm_setup(user=user, code=code)
    assert admin.post(f"/api/v1/people/{user.pk}/remove_second_factor/").status_code == 200
    assert not needs_code(user)


def test_no_key_reaches_sessions_or_invitations():
    client = client_of(Role.ADMIN)
    statuses = {client.get(f"/api/v1/{path}/").status_code for path in ("me/sessions", "invitations")}
    assert statuses == {403}


def test_a_key_needs_no_code():
    user = make_user(password=PASSWORD)
    confirm_setup(user=user, code=pyotp.TOTP(read_secret(start_setup(user=user))).now())
    _, token = create_api_key(user=user, name="k", scopes=["export"])
    assert Client().get("/api/v1/me/", headers={"Authorization": f"Bearer {token}"}).status_code == 200
