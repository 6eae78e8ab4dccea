"""Trying a model, against a real server: what is asked, what comes back, and what may never be quoted."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry
from apps.gym.traces.events import ErrorRaised, ModelCall, Prompt
from apps.policies import model_trial
from apps.policies.model_trial import try_model
from apps.policies.secrets import encrypt_secret
from tests.deadlines import DEADLINE
from tests.factories import make_policy_model, make_user

pytestmark = pytest.mark.django_db

KEY = "sk-test-0123456789abcd"
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT = {
    "id": "chat_1",
    "model": "qwen3-served",
    "prompt_token_ids": [1] * 1000,
    "choices": [
        {
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
            "token_ids": [4] * 500,
            "logprobs": {"content": [{"logprob": -0.5}] * 500},
        }
    ],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 500},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.bodies.append(orjson.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        assert self.server.may_answer.wait(DEADLINE)
        sent = orjson.dumps(self.server.answer)
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.bodies, server.status, server.answer, server.may_answer = [], 200, CHAT, threading.Event()
    server.may_answer.set()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


def make_model(server, **fields):
    given = {
        "slug": "qwen",
        "provider": "vllm",
        "base_url": f"http://127.0.0.1:{server.server_address[1]}/v1",
        "model_name": "qwen3",
        "api_key_encrypted": encrypt_secret(KEY),
        "sampling": {"temperature": 1.0, "top_p": 0.9},
        "version": "step-7",
    }
    return make_policy_model(**{**given, **fields})


def attempt(model, **fields):
    return try_model(policy_model=model, user=None, **{"prompt": "1 + 1?", **fields})


def test_the_reply_is_a_trace_with_the_prompt(server):
    model = make_model(server, capture_tokens=True, input_price=2.0, output_price=8.0)
    trial = attempt(model, system="Be brief.", tools=[TOOL], sampling={"temperature": 0.2, "tool_choice": "required"})
    prompt, call = trial.events
    assert isinstance(prompt, Prompt)
    assert [(item["role"], item["content"]) for item in prompt.items] == [("system", "Be brief."), ("user", "1 + 1?")]
    assert isinstance(call, ModelCall)
    assert [(item["type"], item["name"], item["arguments"]) for item in call.items] == [
        ("function_call", "add", '{"a": 1}')
    ]
    assert (call.model, call.version, call.finish_reason, call.seen) == ("qwen3-served", "step-7", "tool_calls", 2)
    assert call.sampling == {"temperature": 0.2, "top_p": 0.9, "tool_choice": "required"}
    assert trial.captured == {"prompt": 1000, "generated": 500}
    assert trial.cost == pytest.approx((1000 * 2.0 + 500 * 8.0) / 1e6)
    (sent,) = server.bodies
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["tool_choice"]) == ("qwen3", 0.2, 0.9, "required")
    assert sent["tools"][0]["function"]["name"] == "add"


def test_what_the_endpoint_refuses_is_the_end_of_the_trial_without_its_key(server):
    server.status, server.answer = 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    trial = attempt(make_model(server))
    error = trial.events[-1]
    assert isinstance(error, ErrorRaised)
    assert (error.kind, error.message) == (
        "policy_error",
        "The policy model returned 401: Incorrect API key provided: [API key]",
    )
    assert (trial.captured, trial.cost) == (None, None)


def test_a_trial_ends_at_the_time_limit(server, monkeypatch):
    monkeypatch.setattr(model_trial, "TRY_SECONDS", 0.3)
    server.may_answer.clear()
    assert attempt(make_model(server)).events[-1].kind == "timed_out"


def test_an_address_that_is_not_allowed_is_not_called(server, settings):
    settings.OUTBOUND_ALLOW = []
    error = attempt(make_model(server)).events[-1]
    assert error.kind == "policy_error"
    assert "GYMWEB_OUTBOUND_ALLOW" in error.message
    assert server.bodies == []


def test_a_key_that_cannot_be_read_is_said(server):
    error = attempt(make_model(server, api_key_encrypted="damaged")).events[-1]
    assert (error.kind, server.bodies) == ("policy_error", [])
    assert "GYMWEB_SECRET_KEY" in error.message


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"prompt": " "}, "prompt", "Enter a prompt."),
        ({"system": "x" * 200_001}, "system", "at most 200,000 characters"),
        ({"tools": [{"name": "a b"}]}, "tools", "/0/name must be"),
        ({"sampling": {"temperature": 3}}, "sampling", "from 0 to 2, not 3"),
        ({"sampling": {"seed": 2**70}}, "sampling", "exceeds 64-bit range"),
        ({"tools": [{"name": "f", "x": 2**70}]}, "tools", "exceeds 64-bit range"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_field_and_not_sent(server, change, field, problem):
    with pytest.raises(ValidationError) as wrong:
        attempt(make_model(server), **change)
    [(named, [message])] = wrong.value.message_dict.items()
    assert (named, problem in message) == (field, True)
    assert (server.bodies, AuditEntry.objects.count()) == ([], 0)


def test_a_trial_is_in_the_audit_log_without_its_text(server):
    user = make_user()
    try_model(policy_model=make_model(server), prompt="a private question", user=user)
    entry = AuditEntry.objects.get()
    assert (entry.user, entry.action, entry.target, entry.detail) == (
        user,
        "policy_model.try",
        "qwen",
        {"answered": True},
    )


def test_a_scripted_model_can_be_tried_too():
    model = make_policy_model(mistake_rate=0.0)
    call = attempt(model, prompt="What is 2 + 2?").events[-1]
    assert isinstance(call, ModelCall)
    assert "4" in str(call.items[-1])
