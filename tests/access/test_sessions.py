"""Sessions and CSRF: what a browser holds, when it ends, and that no other site can use it."""

import json
import os
import subprocess
import sys

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client

from apps.accounts.models import Role, User
from apps.accounts.permissions import Permission
from apps.accounts.user_accounts import change_password, edit_user
from apps.rollouts.notifications import announce_from_loop
from gymweb.asgi import application
from tests.access.routes import every_route
from tests.deadlines import DEADLINE
from tests.factories import make_collection, make_user

OLD, NEW = "an old pass phrase", "quite another pass phrase"
UNSAFE = ["POST", "PUT", "PATCH", "DELETE"]


def signed_in(user: User) -> Client:
    client = Client()
    reply = client.post("/sign-in/", {"username": user.username, "password": OLD})
    assert reply.status_code == 302
    return client


@pytest.fixture
def ada(db) -> User:
    return make_user(Role.ADMIN, username="ada", password=OLD)


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def test_the_cookie_of_a_session_is_out_of_reach_of_scripts_and_of_other_sites(ada):
    cookie = signed_in(ada).cookies[settings.SESSION_COOKIE_NAME]
    assert (cookie["httponly"], cookie["samesite"], cookie["secure"], cookie["domain"]) == (True, "Lax", "", "")


def test_behind_tls_the_cookies_go_over_tls_only(tmp_path):
    names = ["SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT", "SECURE_HSTS_SECONDS"]
    code = f"import json; from gymweb import settings; print(json.dumps([getattr(settings, n) for n in {names}]))"
    environment = {**os.environ, "GYMWEB_SECURE": "1", "GYMWEB_VAR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == [True, True, True, 31_536_000]


def test_signing_in_gives_a_new_session_and_a_new_csrf_token(ada):
    client = Client()
    client.get("/sign-in/")
    session = client.session
    session["planted"] = True
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    token = client.cookies["csrftoken"].value
    client.post("/sign-in/", {"username": "ada", "password": OLD})
    assert client.session.session_key != session.session_key
    assert client.cookies["csrftoken"].value != token
    stranger = Client()
    stranger.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    assert (is_in(client), is_in(stranger)) == (True, False)


def test_a_session_that_was_signed_out_is_worth_nothing(ada):
    client = signed_in(ada)
    copied = Client()
    copied.cookies[settings.SESSION_COOKIE_NAME] = client.cookies[settings.SESSION_COOKIE_NAME].value
    assert is_in(copied)
    client.post("/sign-out/")
    assert (is_in(client), is_in(copied)) == (False, False)


def test_a_new_password_signs_out_everywhere_else(ada):
    here, elsewhere = signed_in(ada), signed_in(ada)
    here.post("/account/", {"current": OLD, "password": NEW, "again": NEW})
    assert (is_in(here), is_in(elsewhere)) == (True, False)
    assert elsewhere.get("/api/v1/me/").status_code == 401


def test_a_closed_account_is_out_at_once_and_a_lower_role_holds_at_once(ada):
    eve = make_user(Role.ADMIN, username="eve", password=OLD)
    client = signed_in(eve)
    edit_user(person=eve, role=Role.VIEWER, by=ada)
    assert (client.get("/people/").status_code, is_in(client)) == (403, True)
    edit_user(person=eve, role=Role.VIEWER, is_active=False, by=ada)
    assert is_in(client) is False


@pytest.mark.django_db(transaction=True)
def test_an_open_socket_ends_with_its_session():
    user = make_user(Role.ADMIN, username="ada", password=OLD)
    collection = make_collection()
    cookie = signed_in(user).cookies[settings.SESSION_COOKIE_NAME].value
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()),
    ]

    async def follow() -> int:
        socket = WebsocketCommunicator(application, f"/ws/collections/{collection.pk}/", headers)
        assert (await socket.connect(timeout=DEADLINE))[0]
        await socket.receive_from(timeout=DEADLINE)
        await sync_to_async(change_password)(person=user, password=NEW, by=user)
        await announce_from_loop(collection.pk)
        closed = await socket.receive_output(timeout=DEADLINE)
        assert closed["type"] == "websocket.close"
        return int(closed["code"])

    assert async_to_sync(follow)() == 4404


def test_every_change_by_a_session_wants_its_csrf_token(ada):
    """Pages and API; what leads nowhere below /api/ has nothing to guard."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    routes = [route for route in every_route() if route.path != "/api/"]
    asked = [(method, route) for route in routes for method in UNSAFE if route.rules.get(method)]
    assert len(asked) > 100
    passed = [
        f"{method} {route.path}" for method, route in asked if client.generic(method, route.path).status_code != 403
    ]
    assert passed == []


def test_with_its_token_a_change_passes_and_with_that_of_another_session_it_does_not(ada):
    client = Client(enforce_csrf_checks=True)
    client.get("/sign-in/")
    sent = {"username": "ada", "password": OLD}
    assert client.post("/sign-in/", sent, headers={"X-CSRFToken": "x" * 64}).status_code == 403
    token = client.cookies["csrftoken"].value
    assert client.post("/sign-in/", sent, headers={"X-CSRFToken": token}).status_code == 302
    # The token was of the page before signing in.
    assert client.post("/sign-out/", headers={"X-CSRFToken": token}).status_code == 403
    token = client.cookies["csrftoken"].value
    assert client.post("/sign-out/", headers={"X-CSRFToken": token}).status_code == 302


def test_a_page_of_another_origin_cannot_post(ada, settings):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    client.get("/account/")
    token = client.cookies["csrftoken"].value
    foreign = {"X-CSRFToken": token, "Origin": "https://elsewhere.example"}
    assert client.post("/sign-out/", headers=foreign).status_code == 403
    assert client.post("/sign-out/", headers={**foreign, "Origin": "http://testserver"}).status_code == 302


def test_signing_out_and_the_like_take_no_get(ada):
    changing = [route for route in every_route() if not route.is_api and "POST" in route.rules]
    only_post = [route for route in changing if "GET" not in route.rules]
    assert len(only_post) > 20
    client = Client()
    client.force_login(ada)
    assert {client.get(route.path).status_code for route in only_post} == {405}
    assert is_in(client)


def test_no_rule_lets_a_stranger_change_anything_but_to_sign_in():
    routes = [(method, route) for route in every_route() for method in UNSAFE]
    public = {route.path for method, route in routes if route.rules.get(method) is Permission.PUBLIC}
    assert public == {
        *("/sign-in/", "/sign-in/code/", "/sign-in/no-such-thing/", "/invitations/no-such-thing/"),
        *("/theme/", "/api/"),
    }
