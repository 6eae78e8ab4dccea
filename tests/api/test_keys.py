"""Keys over the API: a session lists, makes and revokes its own; what a key lacks is said in the refusal."""

import json

import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key, find_api_key
from apps.accounts.models import ApiKey, Role
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def session_of(role: str) -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


def program(*scopes: str, role: str = Role.ADMIN) -> Client:
    _, token = create_api_key(user=make_user(role), name="test", scopes=scopes)
    return Client(headers={"Authorization": f"Bearer {token}"})


def test_a_session_makes_a_key_that_works_lists_it_without_its_secret_and_revokes_it():
    client = session_of(Role.ENGINEER)
    body = {"name": "cluster", "scopes": ["rollouts:read", "export"], "days": 30}
    made = client.post("/api/v1/me/keys/", body, content_type="application/json")
    assert made.status_code == 201
    token = made.json()["token"]
    row = ApiKey.objects.get()
    assert find_api_key(token) == row
    assert (made.json()["name"], made.json()["scopes"], made.json()["state"]) == ("cluster", body["scopes"], "usable")
    listed = client.get("/api/v1/me/keys/")
    assert [one["id"] for one in listed.json()["results"]] == [row.pk]
    assert "token" not in listed.json()["results"][0]
    assert token.split("_", 2)[2] not in listed.text
    assert client.delete(f"/api/v1/me/keys/{row.pk}/").json()["state"] == "revoked"
    assert find_api_key(token) is None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x", "scopes": ["everything"]}, "/scopes/0"),
        ({"name": "x", "scopes": ["export", "export"]}, "/scopes"),
        ({"name": "x"}, "/scopes"),
        ({"name": "", "scopes": ["export"]}, "/name"),
        ({"name": "x", "scopes": ["export"], "days": 0}, "/days"),
        ({"name": "x", "scopes": ["export"], "expiry": 3}, "/expiry"),
    ],
)
def test_a_key_that_cannot_be_is_refused_at_its_field(body, pointer):
    reply = session_of(Role.ENGINEER).post("/api/v1/me/keys/", body, content_type="application/json")
    assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (400, [pointer])
    assert not ApiKey.objects.exists()


def test_the_keys_of_others_are_not_there():
    theirs, _ = create_api_key(user=make_user(), name="theirs", scopes=["export"])
    client = session_of(Role.ADMIN)
    assert client.get("/api/v1/me/keys/").json()["results"] == []
    assert client.delete(f"/api/v1/me/keys/{theirs.pk}/").status_code == 404


def test_a_refusal_names_the_scopes_that_would_do():
    reply = program("rollouts:read").post("/api/v1/datasets/", {}, content_type="application/json")
    assert (reply.status_code, reply.json()["type"]) == (403, "urn:gymweb:problem:missing-scope")
    assert "tasks:write or admin" in reply.json()["detail"]
    reply = program("admin").get("/api/v1/me/keys/")
    assert (reply.status_code, "API keys cannot" in reply.json()["detail"]) == (403, True)


def test_a_role_that_lacks_the_permission_is_named_before_any_scope():
    reply = program("admin", role=Role.VIEWER).post("/api/v1/datasets/", {}, content_type="application/json")
    assert reply.json()["type"] == "urn:gymweb:problem:permission-denied"
    assert "Your role" in reply.json()["detail"]


def test_me_tells_the_scopes_of_the_key_and_what_role_and_scopes_give_together():
    told = program("annotate", "tasks:write", role=Role.ANNOTATOR).get("/api/v1/me/").json()
    assert (told["role"], told["scopes"]) == ("annotator", ["annotate", "tasks:write"])
    assert told["permissions"] == ["member", "public", "read_queues", "review"]
    assert session_of(Role.VIEWER).get("/api/v1/me/").json()["scopes"] is None


def test_a_key_and_a_session_are_never_taken_together():
    _, token = create_api_key(user=make_user(Role.ADMIN), name="test", scopes=["admin"])
    client = session_of(Role.ADMIN)
    reply = client.get("/api/v1/me/", headers={"Authorization": f"Bearer {token}"})
    assert reply.status_code == 401
    assert "not both" in reply.json()["detail"]


def test_a_key_in_a_cookie_the_query_or_the_body_is_no_key():
    _, token = create_api_key(user=make_user(Role.ADMIN), name="test", scopes=["admin"])
    client = Client()
    client.cookies["Authorization"] = f"Bearer {token}"
    client.cookies["token"] = token
    body = json.dumps({"token": token, "access_token": token})
    assert client.get(f"/api/v1/me/?access_token={token}&token={token}").status_code == 401
    assert client.post("/api/v1/datasets/", body, content_type="application/json").status_code == 401


def test_a_stream_with_an_endpoint_needs_the_scope_that_runs_rollouts():
    body = {"rows": [{}], "environment": "exact-match", "endpoint": {}}
    for scope, status in (("rollouts:run", 400), ("rollouts:read", 403), ("export", 403)):
        reply = program(scope).post("/api/v1/rollouts/stream/", body, content_type="application/json")
        assert (scope, reply.status_code) == (scope, status)


@pytest.mark.parametrize(("given", "days"), [({}, 90), ({"days": 7}, 7), ({"days": None}, None)])
def test_a_key_expires_in_90_days_unless_told_otherwise_and_nothing_keeps_the_answer(given, days):
    body = {"name": "cluster", "scopes": ["export"], **given}
    made = session_of(Role.ENGINEER).post("/api/v1/me/keys/", body, content_type="application/json")
    row = ApiKey.objects.get()
    kept = row.expires_at and round((row.expires_at - row.created_at).total_seconds() / 86_400)
    assert (made.status_code, made.headers["Cache-Control"], kept) == (201, "no-store", days)
