"""The endpoint as HTTP: keys, origins, hosts, sizes, rates, a full disk, and the versions of the protocol."""

import json

import pytest
from django.test import Client

from apps.accounts.api_keys import revoke_api_key
from apps.accounts.models import ApiKey, Scope
from apps.accounts.request_limits import ADDRESSES, CALLERS
from apps.api.mcp_server import rollout_tools
from apps.api.mcp_server.mcp_view import MAX_BODY
from apps.reviews.models import Comment
from tests.factories import make_collection, make_rollout, make_user
from tests.mcp_server.calls import HEADERS, ask, call, client_of, refused, send

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    return client_of(make_user(), Scope.ROLLOUTS_READ, Scope.ANNOTATE)


def test_without_a_valid_key_nothing_is_told(client):
    for stranger in (Client(headers=HEADERS), Client(headers={**HEADERS, "Authorization": "Bearer gw_0_0"})):
        response = send(stranger, "tools/list")
        assert (response.status_code, response["WWW-Authenticate"].split()[0]) == (401, "Bearer")
        assert "list_rollouts" not in response.text
    revoke_api_key(api_key=ApiKey.objects.get(), user=None)
    assert send(client, "tools/list").status_code == 401


def test_a_session_needs_a_csrf_token():
    browser = Client(headers=HEADERS, enforce_csrf_checks=True)
    browser.force_login(make_user())
    assert send(browser, "tools/list").status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://testserver", 200),
        ("https://testserver", 403),
        ("http://testserver:81", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("https://trusted.example", 200),
    ],
)
def test_pages_of_other_sites_are_refused(client, settings, origin, status):
    settings.CSRF_TRUSTED_ORIGINS = ["https://trusted.example"]
    assert send(client, "tools/list", headers={"Origin": origin}).status_code == status


def test_another_host_name_is_refused(client):
    assert send(client, "tools/list", headers={"Host": "rebound.example"}).status_code == 400


def test_only_post_is_served(client):
    assert [client.get("/mcp").status_code, client.delete("/mcp").status_code] == [405, 405]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_version_of_the_handshake_is_agreed_to(client, version):
    opening = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    result = ask(client, "initialize", opening)
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == (version, "gymweb")


def test_a_notification_has_no_answer(client):
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    response = client.post("/mcp", body, content_type="application/json")
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("body", ["{", "[]", "1", '{"jsonrpc":"2.0"}', "\x00", '{"jsonrpc":"2.0","id":1,"method":1}'])
def test_a_body_that_is_no_request_is_refused(client, body):
    response = client.post("/mcp", body, content_type="application/json")
    assert response.status_code == 400
    assert "error" in response.json()


def test_an_unknown_method_is_an_error_of_the_protocol(client):
    assert send(client, "resources/nothing").json()["error"]["code"] == -32601


def test_a_large_body_is_refused(client):
    response = send(client, "tools/call", {"name": "list_rollouts", "arguments": {"q": "x" * MAX_BODY}})
    assert (response.status_code, response.json()["type"]) == (413, "urn:gymweb:problem:too-large")


def test_a_call_counts_once_towards_the_rate_of_its_key(client, settings):
    CALLERS.forget()
    ADDRESSES.forget()
    settings.API_RATE = 3
    try:
        rollout = make_rollout(make_collection())
        for _ in range(3):
            # Three operations of the API.
            call(client, "read_rollout", rollout=rollout.pk)
        response = send(client, "tools/list")
        assert (response.status_code, response.json()["type"]) == (429, "urn:gymweb:problem:throttled")
    finally:
        CALLERS.forget()
        ADDRESSES.forget()


def test_while_the_disk_is_full_tools_read_and_do_not_write(client, full_disk):
    rollout = make_rollout(make_collection())
    assert call(client, "read_trace", rollout=rollout.pk)["total"] == 5
    assert "disk of the database" in refused(client, "add_comment", rollout=rollout.pk, text="x")
    assert not Comment.objects.exists()


def test_a_bug_is_a_500_that_tells_nothing(client, monkeypatch):
    monkeypatch.setattr(rollout_tools, "pick", None)
    client.raise_request_exception = False
    rollout = make_rollout(make_collection())
    response = send(client, "tools/call", {"name": "read_trace", "arguments": {"rollout": rollout.pk}})
    assert (response.status_code, response.json()["type"]) == (500, "urn:gymweb:problem:server-error")
    assert "NoneType" not in response.text
