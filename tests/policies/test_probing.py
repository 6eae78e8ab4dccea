"""The health check, against a real server in a thread of its own."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import orjson
import pytest

from apps.policies.models import Health, PolicyModel, Provider
from apps.policies.probing import probe_policy_model
from apps.policies.secrets import encrypt_secret
from tests.factories import make_policy_model

pytestmark = pytest.mark.django_db
KEY = "sk-test-0123456789abcd"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        return None


@pytest.fixture
def server(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.answer = 200, orjson.dumps({"data": [{"id": "qwen3"}, {"id": "llama"}]})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def probe(server, **fields):
    given = {"base_url": f"http://127.0.0.1:{server.server_port}/v1/", "model_name": "qwen3", **fields}
    row = make_policy_model(provider=Provider.COMPATIBLE, **given)
    probe_policy_model(policy_model=row)
    stored = PolicyModel.objects.get(pk=row.pk)
    assert stored.health_checked_at is not None
    return stored.health, stored.health_message


def test_an_endpoint_that_has_the_model_is_healthy(server):
    health, message = probe(server, api_key_encrypted=encrypt_secret(KEY))
    assert (health, message) == (Health.HEALTHY, "The endpoint answers and has the model 'qwen3'.")
    assert server.requests == [("/v1/models", f"Bearer {KEY}")]


def test_a_missing_model_is_named_with_those_that_are_there(server):
    assert probe(server, model_name="nope") == (
        Health.UNHEALTHY,
        "The endpoint has no model 'nope'; it has: qwen3, llama.",
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b"{}"), "The endpoint answered 401: no API key is stored."),
        ((404, b"{}"), "The endpoint has no /models: the base URL should go up to and including /v1."),
        ((500, b"{}"), "The endpoint answered 500."),
        ((200, b"<html>"), "The endpoint's list of models cannot be read: is this an OpenAI-compatible base URL?"),
        ((200, b"[]"), "The endpoint's list of models cannot be read: is this an OpenAI-compatible base URL?"),
        ((200, b'{"data": []}'), "The endpoint has no model 'qwen3'; it has: none."),
    ],
)
def test_what_is_wrong_is_said(server, answer, message):
    server.answer = answer
    assert probe(server) == (Health.UNHEALTHY, message)


def test_a_refused_key_is_told_from_a_missing_one_and_shown_nowhere(server):
    server.answer = 401, orjson.dumps({"error": {"message": f"bad key {KEY}"}})
    assert probe(server, api_key_encrypted=encrypt_secret(KEY)) == (
        Health.UNHEALTHY,
        "The endpoint answered 401: the stored API key was refused.",
    )


def test_an_endpoint_that_is_not_there_is_unhealthy(server):
    health, message = probe(server, base_url="http://127.0.0.1:1/v1")
    assert health == Health.UNHEALTHY
    assert message.startswith("http://127.0.0.1:1/v1/models: ")


def test_an_endpoint_that_may_not_be_called_names_the_setting(server, settings):
    settings.OUTBOUND_ALLOW = []
    health, message = probe(server)
    assert health == Health.UNHEALTHY
    assert "GYMWEB_OUTBOUND_ALLOW" in message
    assert server.requests == []


def test_a_key_that_cannot_be_read_is_said(server):
    health, message = probe(server, api_key_encrypted="damaged")
    assert health == Health.UNHEALTHY
    assert "Enter it again" in message


def test_the_scripted_model_is_always_ready():
    row = probe_policy_model(policy_model=make_policy_model())
    assert (row.health, row.health_message) == (Health.HEALTHY, "Scripted, no LLM: always ready.")


def test_what_an_endpoint_says_is_stored_as_one_short_line(server):
    server.answer = 200, orjson.dumps({"data": [{"id": "a\x00b\r\nc"}, {"id": "long" * 200}]})
    health, message = probe(server, model_name="nope")
    assert (health, len(message)) == (Health.UNHEALTHY, 500)
    assert message.startswith("The endpoint has no model 'nope'; it has: a b  c, longlong")
