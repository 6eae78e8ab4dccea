"""Every error of the API is a problem document with its own kind."""

import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key, revoke_api_key
from tests.api.conftest import client_of
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db


def problem_of(response):
    assert response.headers["Content-Type"] == "application/problem+json"
    body = response.json()
    assert {"type", "title", "status", "detail", "instance"} <= set(body)
    assert body["status"] == response.status_code
    return body["type"].removeprefix("urn:gymweb:problem:")


def test_a_stranger_is_asked_for_a_key(client):
    response = client.get("/api/v1/datasets/")
    assert (response.status_code, problem_of(response)) == (401, "not-authenticated")
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="api"'
    assert client.get("/api/v1/datasets/no/such/").status_code == 404


@pytest.mark.parametrize("header", ["Bearer", "Bearer gw_a_b", "Bearer a b c", "Bearer \xff", "bearer gw__"])
def test_a_wrong_key_is_refused(client, header):
    response = client.get("/api/v1/me/", headers={"Authorization": header})
    assert (response.status_code, problem_of(response)) == (401, "authentication-failed")


def test_a_revoked_key_stops_working():
    user = make_user()
    api_key, token = create_api_key(user=user, name="k", scopes=["admin"])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    assert client.get("/api/v1/me/").json()["username"] == user.username
    revoke_api_key(api_key=api_key, user=user)
    assert client.get("/api/v1/me/").status_code == 401


def test_an_address_that_leads_nowhere_says_so_in_json(viewer):
    response = viewer.get("/api/v1/dataset")
    assert (response.status_code, problem_of(response)) == (404, "not-found")
    assert "end with a slash" in response.json()["detail"]
    assert problem_of(viewer.get("/api/v1/datasets/no-such-thing/")) == "not-found"
    assert response.json()["instance"] == "/api/v1/dataset"


def test_a_method_that_the_route_does_not_have(viewer):
    response = viewer.delete("/api/v1/me/")
    assert (response.status_code, problem_of(response)) == (405, "method-not-allowed")
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_trace_is_no_way_to_the_trace_of_a_rollout():
    user = make_user()
    _, token = create_api_key(user=user, name="k", scopes=["tasks:write"])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    path = f"/api/v1/rollouts/{make_rollout(make_collection()).pk}/"
    assert client.get(path).status_code == 403
    assert [client.trace(one).status_code for one in (path, "/api/v1/rollouts/")] == [405, 405]


def test_me_returns_the_user_and_its_permissions(viewer):
    answer = viewer.get("/api/v1/me/").json()
    assert (answer["role"], answer["permissions"]) == (
        "viewer",
        ["member", "public", "read", "read_queues", "read_tasks", "views"],
    )


def test_a_bug_is_a_problem_without_its_secrets_and_a_page_elsewhere(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr("apps.api.accounts.own_account.MeViewSet.show", broken)
    client = client_of("viewer")
    client.raise_request_exception = False
    response = client.get("/api/v1/me/")
    assert (response.status_code, problem_of(response)) == (500, "server-error")
    assert b"swordfish" not in response.content


def test_a_host_that_is_not_ours_is_a_problem(client):
    response = client.get("/api/v1/me/", headers={"Host": "elsewhere.example"})
    assert (response.status_code, problem_of(response)) == (400, "bad-request")


@pytest.mark.parametrize(
    ("method", "address", "given", "expected"),
    [
        ("get", "agents/", {"headers": {"Accept": "text/html"}}, (406, "not-acceptable")),
        ("post", "agents/", {"data": b"<a/>", "content_type": "application/xml"}, (415, "unsupported-media-type")),
        ("put", "agents/", {}, (405, "method-not-allowed")),
        ("options", "agents/", {}, (405, "method-not-allowed")),
        ("post", "agents/", {"data": b"{", "content_type": "application/json"}, (400, "parse-error")),
    ],
)
def test_refused_requests_are_problem_documents(engineer, method, address, given, expected):
    response = getattr(engineer, method)(f"/api/v1/{address}", **given)
    assert (response.status_code, problem_of(response)) == expected


def test_a_body_larger_than_the_server_takes_is_a_problem(engineer, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    response = engineer.post("/api/v1/agents/", {"name": "x" * 200}, content_type="application/json")
    assert (response.status_code, problem_of(response)) == (413, "too-large")


def test_a_session_without_its_csrf_token_is_a_problem():
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user())
    response = client.post("/api/v1/agents/", {"slug": "a", "name": "A"}, content_type="application/json")
    assert (response.status_code, problem_of(response)) == (403, "permission-denied")
