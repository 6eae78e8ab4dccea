"""OpenAI and Azure OpenAI through the `openai` package, against a server that answers as they do."""

import asyncio

import orjson
import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.errors import PolicyError, TimedOut
from apps.gym.traces.items import message, text_of
from apps.gym.wires.openai_http import PATHS, HttpPolicy
from apps.gym.wires.openai_package import PackageSender, open_azure, open_openai
from apps.gym.wires.protocol import Ask

KEY = "sk-0123456789abcdef"
ASK = Ask(items=[message("user", "What is 6 * 7?")], sampling={"temperature": 0.5}, session="rollout-7")
CHAT = {"id": "r", "model": "gpt-x", "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-x",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "42", "annotations": []}],
        }
    ],
}


class Provider:
    """Answers with what it was given, in turn, and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def handle(self, request):
        self.requests.append((request.method, request.path_qs, request.headers.copy(), await request.read()))
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.sleep(5)
        if callable(answer):
            return answer()
        status, body = answer
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")

    def ask(self, *, azure=None, wire="chat", allow=("127.0.0.1",), call_timeout=120.0):
        async def main():
            runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            root = f"http://127.0.0.1:{runner.addresses[0][1]}"
            outbound = Outbound(OutboundPolicy(list(allow)))
            limits = {"call_timeout": call_timeout, "connect_timeout": 2.0, "headers": {"X-Team": "rl"}}
            if azure is None:
                client = open_openai(outbound, base_url=f"{root}/v1", api_key=KEY, **limits)
            else:
                client = open_azure(
                    outbound, endpoint=root, api_version="2025-04-01-preview", api_key=KEY, **azure, **limits
                )
            policy = HttpPolicy(
                PackageSender(client, path=PATHS[wire]),
                model_name="gpt-x",
                wire=wire,
                secrets=[KEY],
                max_tries=2,
                pauses=Pauses(first=0.0),
            )
            try:
                return await policy.ask(ASK)
            finally:
                await client.close()
                await outbound.close()
                await runner.cleanup()

        return asyncio.run(main())


def test_openai_is_asked_over_chat_with_the_key_as_a_bearer_token():
    provider = Provider((200, CHAT))
    reply = provider.ask()
    method, path, headers, body = provider.requests[0]
    assert (method, path, headers["Authorization"]) == ("POST", "/v1/chat/completions", f"Bearer {KEY}")
    assert headers["X-Team"] == "rl"
    assert [name for name, value in headers.items() if not value or name.lower() in ("openai-organization",)] == []
    assert orjson.loads(body)["messages"] == [{"role": "user", "content": "What is 6 * 7?"}]
    assert (reply.items[0]["content"][0]["text"], reply.model, reply.retries) == ("42", "gpt-x", 0)


def test_openai_is_asked_over_responses():
    provider = Provider((200, RESPONSE))
    reply = provider.ask(wire="responses")
    assert provider.requests[0][1] == "/v1/responses"
    assert reply.items == RESPONSE["output"]


@pytest.mark.parametrize(
    ("wire", "is_token", "path", "header", "value"),
    [
        (
            "chat",
            False,
            "/openai/deployments/gpt-x/chat/completions?api-version=2025-04-01-preview",
            "api-key",
            KEY,
        ),
        ("responses", False, "/openai/responses?api-version=2025-04-01-preview", "api-key", KEY),
        (
            "chat",
            True,
            "/openai/deployments/gpt-x/chat/completions?api-version=2025-04-01-preview",
            "Authorization",
            f"Bearer {KEY}",
        ),
    ],
)
def test_azure_names_deployment_and_version_and_takes_a_key_or_a_token(wire, is_token, path, header, value):
    provider = Provider((200, CHAT if wire == "chat" else RESPONSE))
    provider.ask(azure={"is_token": is_token}, wire=wire)
    _, asked, headers, _ = provider.requests[0]
    assert (asked, headers[header]) == (path, value)
    assert (KEY in str(headers.get("Authorization", ""))) is is_token


def test_transient_errors_are_retried_only_by_gymweb():
    provider = Provider((429, {"error": {"message": "slow down"}}), (200, CHAT))
    assert provider.ask().retries == 1
    assert len(provider.requests) == 2


def test_what_lasts_is_a_policy_error_that_does_not_quote_the_key():
    provider = Provider((401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}))
    with pytest.raises(PolicyError, match=r"returned 401: Incorrect API key provided: \[API key\]") as refusal:
        provider.ask()
    assert refusal.value.transient is False
    assert len(provider.requests) == 1


def test_a_time_out_is_one():
    with pytest.raises(TimedOut):
        Provider(None, None).ask(call_timeout=0.3)


def test_the_package_goes_no_other_way_than_the_guarded_one():
    provider = Provider()
    with pytest.raises(PolicyError, match="GYMWEB_OUTBOUND_ALLOW"):
        provider.ask(allow=())
    assert provider.requests == []


def test_nothing_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody-elses")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.example/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-elsewhere")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "somebody-elses")
    provider = Provider((200, CHAT))
    provider.ask()
    headers = provider.requests[0][2]
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert "elsewhere" not in str(headers).lower()


@pytest.mark.parametrize("azure", [None, {"is_token": False}])
def test_a_reply_that_comes_compressed_is_read(azure):
    def answer():
        response = web.Response(body=orjson.dumps(CHAT), content_type="application/json")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    assert text_of(Provider(answer).ask(azure=azure).items[0]) == "42"
