"""The health check, against a real server in a thread of its own."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from apps.policies.endpoint_health import probe_policy_model
from apps.policies.models import Health, PolicyModel, Provider
from apps.policies.secrets import encrypt_secret
from apps.policies.setup_checks import SETUP_CHECKS
from tests.factories import make_policy_model

pytestmark = pytest.mark.django_db
KEY = "sk-test-0123456789abcd"
MODELS = {"data": [{"id": "qwen3"}, {"id": "llama"}]}
ARGUMENTS = '{"color": "blue"}'
CALL = {"id": "call_1", "type": "function", "function": {"name": "report_color", "arguments": ARGUMENTS}}
CHAT = {
    "id": "chat_1",
    "model": "qwen3",
    "choices": [
        {"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}
RESPONSE = {
    "id": "resp_1",
    "model": "gpt",
    "status": "completed",
    "output": [{"type": "function_call", "call_id": "call_1", "name": "report_color", "arguments": ARGUMENTS}],
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "qwen3",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "report_color", "input": {"color": "blue"}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
TOKENS = {
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    "prompt_token_ids": [1, 2, 3],
    "choices": [
        {
            **CHAT["choices"][0],
            "token_ids": [4, 5],
            "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -0.25}]},
        }
    ],
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer(orjson.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body=None):
        path = self.path.split("?")[0]
        is_of_setup = body and body.get("tool_choice") not in ("required", {"type": "any"})
        (self.server.of_setup if is_of_setup else self.server.requests).append((self.path, self.key(), body))
        status, answer = self.server.answers.get(path, (404, {}))
        answer = answer(body) if callable(answer) else answer
        sent = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def key(self):
        return next(
            (self.headers[name] for name in ("Authorization", "api-key", "x-api-key") if self.headers[name]), None
        )

    def log_message(self, *args):
        return None


@pytest.fixture
def server(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.requests, server.of_setup = [], []
        server.answers = {
            "/v1/models": (200, MODELS),
            "/v1/chat/completions": (200, CHAT),
            "/v1/responses": (200, RESPONSE),
            "/v1/messages": (200, MESSAGE),
        }
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def check(server, **fields):
    """The stored row after a check."""
    given = {"base_url": f"http://127.0.0.1:{server.server_port}/v1/", "model_name": "qwen3", **fields}
    row = make_policy_model(**{"provider": Provider.COMPATIBLE, **given})
    probe_policy_model(policy_model=row)
    stored = PolicyModel.objects.get(pk=row.pk)
    assert stored.health_checked_at is not None
    return stored


def probe(server, **fields):
    stored = check(server, **fields)
    return stored.health, stored.health_message


def states(stored):
    return [(each["name"], each["status"]) for each in stored.health_checks if each["name"] not in SETUP_CHECKS]


def message_of(stored, name):
    return next(each["message"] for each in stored.health_checks if each["name"] == name)


def test_an_endpoint_that_has_the_model_and_calls_tools_is_healthy(server):
    stored = check(server, api_key_encrypted=encrypt_secret(KEY), sampling={"temperature": 0.2})
    assert (stored.health, "calls tools" in stored.health_message) == (Health.HEALTHY, True)
    assert states(stored) == [
        ("reachable", "ok"),
        ("model", "ok"),
        ("tool_call", "ok"),
        ("usage", "ok"),
        ("tokens", "not_applicable"),
        ("latency", "ok"),
    ]
    assert [(path, key) for path, key, _ in server.requests] == [
        ("/v1/models", f"Bearer {KEY}"),
        ("/v1/chat/completions", f"Bearer {KEY}"),
    ]
    asked = server.requests[1][2]
    assert (asked["tool_choice"], asked["max_completion_tokens"], asked["temperature"]) == ("required", 512, 0.2)
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["report_color"]


def test_over_the_responses_wire_the_call_is_made_in_its_words(server):
    stored = check(server, wire="responses")
    assert stored.health == Health.HEALTHY
    path, _, asked = server.requests[1]
    assert (path, asked["tool_choice"], asked["max_output_tokens"]) == ("/v1/responses", "required", 512)
    assert asked["tools"][0]["name"] == "report_color"


def test_openai_is_asked_through_its_package(server):
    stored = check(server, provider="openai", wire="responses", api_key_encrypted=encrypt_secret(KEY))
    assert (stored.health, states(stored)[0]) == (Health.HEALTHY, ("reachable", "ok"))
    assert [(path, key) for path, key, _ in server.requests] == [
        ("/v1/models", f"Bearer {KEY}"),
        ("/v1/responses", f"Bearer {KEY}"),
    ]


def test_anthropic_is_asked_over_its_own_api_and_may_know_more_names_than_it_lists(server):
    server.answers["/v1/models"] = 200, {"data": [{"id": "qwen3-20260101"}], "has_more": False}
    key, sampling = encrypt_secret(KEY), {"temperature": 0.2, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    stored = check(server, provider="anthropic", wire="messages", api_key_encrypted=key, sampling=sampling)
    assert states(stored) == [
        ("reachable", "ok"),
        ("model", "not_applicable"),
        ("tool_call", "ok"),
        ("usage", "ok"),
        ("tokens", "not_applicable"),
        ("latency", "ok"),
    ]
    assert [(path, key) for path, key, _ in server.requests] == [("/v1/models", KEY), ("/v1/messages", KEY)]
    asked = server.requests[1][2]
    assert (asked["tool_choice"], asked["max_tokens"], asked["temperature"]) == ({"type": "any"}, 512, 0.2)
    assert ([tool["name"] for tool in asked["tools"]], "thinking" in asked) == (["report_color"], False)
    server.answers["/v1/models"] = 401, {"type": "error", "error": {"type": "x", "message": f"invalid {KEY}"}}
    refused = check(server, provider="anthropic", wire="messages", api_key_encrypted=key)
    assert (refused.health, "rejected" in refused.health_message, KEY in refused.health_message) == (
        Health.UNHEALTHY,
        True,
        False,
    )


def test_azure_is_asked_for_its_deployment(server):
    server.answers = {
        "/openai/models": (200, {"data": []}),
        "/openai/deployments/qwen3/chat/completions": (200, CHAT),
    }
    root = f"http://127.0.0.1:{server.server_port}"
    stored = check(
        server, provider="azure", base_url=root, api_version="2025-04-01", api_key_encrypted=encrypt_secret(KEY)
    )
    assert states(stored)[:3] == [("reachable", "ok"), ("model", "not_applicable"), ("tool_call", "ok")]
    assert [(path, key) for path, key, _ in server.requests] == [
        ("/openai/models?api-version=2025-04-01", KEY),
        ("/openai/deployments/qwen3/chat/completions?api-version=2025-04-01", KEY),
    ]


@pytest.mark.parametrize(("provider", "name"), [("openai", "OpenAI"), ("azure", "Azure OpenAI")])
def test_a_provider_that_needs_a_key_and_has_none_is_not_asked(server, monkeypatch, provider, name):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-of-somebody-else")
    health, message = probe(server, provider=provider, api_version="2025-04-01")
    assert (health, "No API key" in message, f"{name} needs one" in message) == (Health.UNHEALTHY, True, True)
    assert server.requests == []


def test_vllm_tells_its_version_and_its_context_length(server):
    model = {"id": "qwen3", "root": "/models/qwen3", "max_model_len": 640}
    server.answers["/v1/models"] = 200, {"data": [{"id": "other", "max_model_len": 8}, model]}
    server.answers["/version"] = 200, {"version": "0.32.0"}
    stored = check(server, provider="vllm")
    assert stored.health == Health.HEALTHY
    assert stored.capabilities == {"server_version": "0.32.0", "root": "/models/qwen3", "max_model_len": 640}
    assert "version 0.32.0" in message_of(stored, "reachable")
    assert ("'qwen3'" in message_of(stored, "model"), "640 tokens" in message_of(stored, "model")) == (True, True)
    # Half of a small context is the prompt's.
    assert server.requests[-1][2]["max_completion_tokens"] == 320


def test_vllm_in_its_development_mode_tells_data_type_and_defaults(server):
    config = {"dtype": "torch.bfloat16", "generation_config": "auto", "override_generation_config": {}}
    server.answers["/v1/models"] = 200, {"data": [{"id": "qwen3", "owned_by": "vllm"}]}
    server.answers["/version"] = 200, {"version": "0.32.0"}
    server.answers["/server_info"] = 200, {"vllm_config": {"model_config": config}, "vllm_env": {}}
    server.answers["/v1/chat/completions"] = 200, TOKENS
    stored = check(server, provider="vllm", capture_tokens=True)
    assert stored.capabilities == {
        "engine": "vllm",
        "server_version": "0.32.0",
        "dtype": "bfloat16",
        "generation_config": "auto",
    }
    assert "generation_config.json sets" in message_of(stored, "tokens")
    assert stored.engine == {"engine": "vllm", "engine_version": "0.32.0", "dtype": "bfloat16"}
    config["generation_config"] = "vllm"
    assert "generation_config.json" not in message_of(check(server, provider="vllm", capture_tokens=True), "tokens")


@pytest.mark.parametrize("owner", ["openai", "me", None, ["vllm"]])
def test_an_owner_of_a_model_is_no_engine(server, owner):
    server.answers["/v1/models"] = 200, {"data": [{"id": "qwen3", "owned_by": owner}]}
    server.answers["/server_info"] = 200, {"vllm_config": None}
    assert check(server, provider="vllm").engine == {}


def test_every_base_url_is_asked_and_each_says_for_itself(server):
    dead = "http://127.0.0.1:1/v1"
    stored = check(server, more_base_urls=[dead])
    own = f"http://127.0.0.1:{server.server_port}/v1"
    found = [(each["target"], each["status"]) for each in stored.health_checks if each["name"] == "reachable"]
    assert found == [(own, "ok"), (dead, "failed")]
    assert (stored.health, states(stored)[2:4]) == (Health.UNHEALTHY, [("model", "ok"), ("tool_call", "ok")])
    assert stored.health_message.startswith("http://127.0.0.1:1/v1/models: ")


def test_captured_tokens_are_counted_or_said_to_be_missing(server):
    missing = check(server, capture_tokens=True)
    assert (missing.health, "no_token_ids" in message_of(missing, "tokens")) == (Health.UNHEALTHY, True)
    server.answers["/v1/chat/completions"] = 200, {**CHAT, **TOKENS}
    stored = check(server, capture_tokens=True)
    assert (stored.health, "returns token IDs" in stored.health_message) == (Health.HEALTHY, True)
    assert [part in message_of(stored, "tokens") for part in ("3 prompt ids", "2 reply ids")] == [True, True]


def reply_with(call=None, **message):
    calls = {"tool_calls": [{**CALL, "function": {**CALL["function"], **call}}]} if call else {}
    return {"choices": [{"message": {"role": "assistant", **calls, **message}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            reply_with(content="blue"),
            "has no tool call",
        ),
        (reply_with({"name": "paint"}), "'paint' instead of"),
        (reply_with({"arguments": "blue"}), "not a JSON object"),
        (
            {"choices": [{"message": {"content": "Well"}, "finish_reason": "length"}]},
            "cut at 512 tokens",
        ),
    ],
)
def test_a_reply_without_the_call_is_said_exactly(server, reply, message):
    server.answers["/v1/chat/completions"] = 200, reply
    stored = check(server)
    assert (stored.health, message in message_of(stored, "tool_call")) == (Health.UNHEALTHY, True)


def test_an_error_of_the_call_is_quoted_without_the_key(server):
    server.answers["/v1/chat/completions"] = 400, {"error": {"message": f"tools are off for {KEY}"}}
    stored = check(server, api_key_encrypted=encrypt_secret(KEY))
    assert states(stored)[2:] == [("tool_call", "failed")] + [
        (name, "not_applicable") for name in ("usage", "tokens", "latency")
    ]
    assert "400: tools are off for [API key]" in message_of(stored, "tool_call")


def test_a_missing_model_is_named_with_the_available_ones(server):
    stored = check(server, model_name="nope")
    assert "no model 'nope'" in message_of(stored, "model")
    assert "it has: qwen3, llama" in message_of(stored, "model")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b"{}"), "401: no API key"),
        ((404, b"{}"), "has no /models"),
        ((500, b"{}"), "returned 500."),
        ((503, b"warming up"), "503. Message: warming up"),
        ((200, b"<html>"), "list of models cannot"),
        ((200, b"[]"), "list of models cannot"),
        ((200, b'{"data": []}'), "no model 'qwen3'; it has: none"),
    ],
)
def test_errors_are_explained(server, answer, message):
    server.answers["/v1/models"] = answer
    server.answers["/v1/chat/completions"] = 400, {}
    health, told = probe(server)
    assert (health, message in told) == (Health.UNHEALTHY, True)


@pytest.mark.parametrize("answer", [(404, b"{}"), (500, b"{}"), (200, b""), (200, b"<html>")])
def test_a_server_without_a_list_of_models_is_healthy_if_the_call_is_served(server, answer):
    server.answers["/v1/models"] = answer
    stored = check(server)
    assert (stored.health, dict(states(stored))["model"]) == (Health.HEALTHY, "not_applicable")
    assert message_of(stored, "model").startswith("The list of models failed, but the call below was served.")


def test_one_server_of_several_without_a_list_is_unhealthy_because_only_one_gets_the_call(server):
    server.answers["/v1/models"] = 500, b"{}"
    own = f"http://127.0.0.1:{server.server_port}/v1"
    assert check(server, more_base_urls=[own]).health == Health.UNHEALTHY


@pytest.mark.parametrize(
    ("body", "health", "status"),
    [
        ({"error": {"message": "slow down"}}, Health.HEALTHY, "not_applicable"),
        ({"error": {"message": "no credit", "code": "insufficient_quota"}}, Health.UNHEALTHY, "failed"),
    ],
)
def test_a_passing_429_is_told_from_a_used_up_quota(server, body, health, status):
    server.answers["/v1/chat/completions"] = 429, body
    stored = check(server)
    assert (stored.health, dict(states(stored))["tool_call"]) == (health, status)
    throttled = "The endpoint responds. Not checked: the endpoint throttles calls for now."
    assert stored.health_message.startswith(throttled) == (health == Health.HEALTHY)


@pytest.mark.parametrize(
    ("models", "length"),
    [
        ([{"id": "qwen3", "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}], 4096),
        ([{"id": "base", "max_model_len": 640}, {"id": "qwen3", "parent": "base", "max_model_len": None}], 640),
        ([{"id": "qwen3", "parent": "gone"}], None),
        ([{"id": "qwen3", "meta": {"n_ctx": "4096"}}], None),
    ],
)
def test_the_context_of_llama_cpp_and_of_an_adapter_is_read(server, models, length):
    server.answers["/v1/models"] = 200, {"data": models}
    assert check(server).capabilities.get("max_model_len") == length


def test_a_refused_key_is_told_from_a_missing_one_and_shown_nowhere(server):
    server.answers["/v1/models"] = 401, {"error": {"message": f"bad key {KEY}"}}
    stored = check(server, api_key_encrypted=encrypt_secret(KEY))
    assert stored.health == Health.UNHEALTHY
    assert "stored API key was rejected" in stored.health_message
    assert stored.health_message.endswith("bad key [API key]")
    assert message_of(stored, "tool_call").startswith("Not checked")
    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_is_unhealthy(server):
    stored = check(server, base_url="http://127.0.0.1:1/v1")
    assert stored.health == Health.UNHEALTHY
    assert stored.health_message.startswith("http://127.0.0.1:1/v1/models: ")
    assert states(stored)[1:] == [
        (name, "not_applicable") for name in ("model", "tool_call", "usage", "tokens", "latency")
    ]


def test_a_server_that_hangs_is_given_up_in_bounded_time(server, monkeypatch):
    monkeypatch.setattr("apps.gym.wires.endpoint_checks.LIST_SECONDS", 0.05)
    silent = threading.Event()
    server.RequestHandlerClass = type("Silent", (Handler,), {"do_GET": lambda self: silent.wait(5)})
    stored = check(server)
    silent.set()
    assert (stored.health, "within 0.05 s" in message_of(stored, "reachable")) == (Health.UNHEALTHY, True)


def test_an_endpoint_that_may_not_be_called_names_the_setting(server, settings):
    settings.OUTBOUND_ALLOW = []
    health, message = probe(server)
    assert health == Health.UNHEALTHY
    assert "GYMWEB_OUTBOUND_ALLOW" in message
    assert server.requests == []


def test_a_key_that_cannot_be_read_is_said(server):
    health, message = probe(server, api_key_encrypted="damaged")
    assert health == Health.UNHEALTHY
    assert "cannot be decrypted: GYMWEB_SECRET_KEY has changed" in message


def test_the_scripted_model_is_always_ready():
    row = probe_policy_model(policy_model=make_policy_model())
    assert (row.health, "always ready" in row.health_message) == (Health.HEALTHY, True)


def test_what_an_endpoint_says_is_stored_as_one_short_line(server):
    server.answers["/v1/models"] = 200, {"data": [{"id": "a\x00b\r\nc"}, {"id": "long" * 200}]}
    stored = check(server, model_name="nope")
    message = message_of(stored, "model")
    assert (stored.health, message[:68]) == (
        Health.UNHEALTHY,
        "The endpoint has no model 'nope'; it has: a b  c, longlonglonglonglo",
    )
    assert len(message) < 300


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 9}, {"prompt_tokens": -1, "completion_tokens": 1e30}])
def test_an_endpoint_that_does_not_tell_its_tokens_holds_no_limits(server, usage):
    server.answers["/v1/chat/completions"] = 200, {**CHAT, "usage": usage}
    stored = check(server)
    assert (stored.health, ("usage", "failed") in states(stored)) == (Health.UNHEALTHY, True)
    assert message_of(stored, "usage").startswith("The reply has no token counts, so token and cost limits do")


def test_what_an_endpoint_says_of_itself_is_stored_without_the_key(server):
    model = {"id": "qwen3", "root": f"weights/{KEY}", "max_model_len": 2048}
    server.answers["/v1/models"] = 200, {"data": [model]}
    stored = check(server, api_key_encrypted=encrypt_secret(KEY))
    assert stored.capabilities["root"] == "weights/[API key]"
