"""HttpPolicy against a real server on 127.0.0.1 that misbehaves on request."""

import asyncio
import logging

import orjson
import pytest
from aiohttp import web

from apps.gym.calls.memory_budget import MemoryBudget
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.errors import PolicyError, TimedOut
from apps.gym.wires import sending
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.openai_http import PolicyReplyTooLarge, rejects_unknown_parameters
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import responses_request
from tests.plain_policies import plain_policy

KEY = "sk-test-0123456789abcdef"
ASK = Ask(items=[{"role": "user", "content": "Hi"}], sampling={"seed": 3})
CHAT_OK = {"id": "c", "model": "m", "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
RESPONSES_OK = {"id": "r", "model": "m", "output": [{"type": "message", "role": "assistant", "content": "4"}]}


def error(status, message="Oops.", code=None, **headers):
    return status, {"error": {"message": message, "type": "error", "code": code}}, headers


class Endpoint:
    """Answers each request with the next of its answers: (status, JSON body, headers), bytes, or seconds to sleep."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.slept = []

    async def handle(self, request):
        self.requests.append((request.path, dict(request.headers), orjson.loads(await request.read())))
        answer = self.answers.pop(0)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = 200, CHAT_OK, {}
        if answer is None:
            request.transport.close()
            return web.Response()
        if isinstance(answer, bytes):
            return web.Response(body=answer)
        status, body, headers = answer
        return web.Response(
            status=status, body=body if isinstance(body, bytes) else orjson.dumps(body), headers=headers
        )

    async def sleep(self, seconds):
        self.slept.append(seconds)

    def ask(self, ask=ASK, **given):
        async def main():
            runner = web.ServerRunner(web.Server(self.handle))
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
            policy = plain_policy(
                outbound,
                base_urls=[f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1/"],
                pauses=Pauses(first=1.0, draw=lambda: 1.0, sleep=self.sleep),
                **{"model_name": "m", "wire": "chat", "api_key": KEY, "max_tries": 3, **given},
            )
            try:
                return await policy.ask(ask)
            finally:
                await outbound.close()
                await runner.cleanup()

        return asyncio.run(main())


def ok(body=CHAT_OK):
    return 200, body, {}


def test_a_chat_call_says_everything_and_reads_the_reply():
    endpoint = Endpoint(ok())
    reply = endpoint.ask(Ask(items=ASK.items, sampling={"temperature": 0.5}, session="rollout-7"))
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    assert (headers["Authorization"], headers["X-Session-ID"]) == (f"Bearer {KEY}", "rollout-7")
    assert (reply.items[0]["content"][0]["text"], reply.finish_reason, reply.retries) == ("4", "stop", 0)


def test_the_session_of_a_call_replaces_the_models_own():
    endpoint = Endpoint(ok(), ok())
    for session in ("rollout-7", ""):
        endpoint.ask(Ask(items=ASK.items, session=session), headers={"X-Session-ID": "own"})
    assert [headers["X-Session-ID"] for _, headers, _ in endpoint.requests] == ["rollout-7", "own"]


def test_a_responses_call_says_everything_and_reads_the_reply():
    endpoint = Endpoint(ok(RESPONSES_OK))
    reply = endpoint.ask(wire="responses", api_key="")
    path, headers, body = endpoint.requests[0]
    assert (path, body) == ("/v1/responses", {"model": "m", "input": ASK.items, "stream": False, "seed": 3})
    assert "Authorization" not in headers
    assert reply.items == RESPONSES_OK["output"]


@pytest.mark.parametrize(
    ("wire", "answer", "told"), [("chat", CHAT_OK, {}), ("responses", RESPONSES_OK, {"strict": False})]
)
def test_tools_that_are_never_strict_are_sent_without_it_and_the_reply_has_no_grammar(wire, answer, told):
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    endpoint = Endpoint(ok(answer), ok(answer))
    free = endpoint.ask(Ask(items=ASK.items, tools=[tool], strict=False), wire=wire)
    constrained = endpoint.ask(Ask(items=ASK.items, tools=[{**tool, "strict": True}]), wire=wire)
    [sent] = endpoint.requests[0][2]["tools"]
    assert (sent["function"] if wire == "chat" else sent) == {
        **({} if wire == "chat" else {"type": "function"}),
        "name": "add",
        "parameters": {"type": "object"},
        **told,
    }
    assert (free.grammar, constrained.grammar) == (False, True)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_passing_failure_is_tried_again(status):
    endpoint = Endpoint(error(status), error(status), ok())
    assert endpoint.ask().retries == 2
    assert endpoint.slept == [1.0, 2.0]


def test_retry_after_is_honoured():
    endpoint = Endpoint(error(429, **{"Retry-After": "7"}), ok())
    endpoint.ask()
    assert endpoint.slept == [8.0]


def test_a_dropped_connection_is_tried_again():
    assert Endpoint(None, ok()).ask().retries == 1


def test_a_reply_that_is_no_json_is_tried_again_and_then_an_error():
    assert Endpoint(b"<html>", ok()).ask().retries == 1
    with pytest.raises(PolicyError, match="is not a chat completion"):
        Endpoint(b"<html>", b"{", b"{}").ask()


@pytest.mark.parametrize("limited_by", ["the reply's own limit", "the memory budget"])
def test_a_reply_that_is_too_large_fails_by_name_at_once_and_is_not_the_endpoints_failure(limited_by, monkeypatch):
    if limited_by == "the memory budget":
        monkeypatch.setattr(MemoryBudget, "largest_reply", 1_000)
    else:
        monkeypatch.setattr(sending, "MAX_REPLY", 1_000)
    observed = []
    endpoint = Endpoint(*3 * [b"x" * 2_000])
    with pytest.raises(PolicyReplyTooLarge, match=r"1,000 bytes.*max_output_tokens") as caught:
        endpoint.ask(observe=lambda outcome, said="": observed.append(outcome))
    assert (len(endpoint.requests), observed, caught.value.transient) == (1, ["failed"], False)


def test_announced_calls_that_are_missing_are_asked_for_again():
    empty = {"id": "c", "choices": [{"message": {"content": None}, "finish_reason": "tool_calls"}]}
    assert Endpoint(ok(empty), ok()).ask().retries == 1
    with pytest.raises(PolicyError, match="has no tool call"):
        Endpoint(ok(empty), ok(empty), ok(empty)).ask()


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_reply_that_was_none_is_asked_for_under_another_seed_and_a_silence_under_the_same(wire):
    endpoint = Endpoint(b"no JSON", error(503), b"no JSON", ok(CHAT_OK if wire == "chat" else RESPONSES_OK))
    reply = endpoint.ask(wire=wire, max_tries=4)
    first, second, third, fourth = (body["seed"] for _, _, body in endpoint.requests)
    assert (first, second, len({first, second, fourth})) == (3, third, 3)
    assert reply.sampling == {"seed": fourth}
    assert Endpoint(ok()).ask().sampling is None


def test_tries_end():
    endpoint = Endpoint(*[error(503, "Overloaded.")] * 3)
    with pytest.raises(PolicyError, match="returned 503: Overloaded") as caught:
        endpoint.ask()
    assert (len(endpoint.requests), caught.value.kind) == (3, "policy_error")


def test_a_call_that_stays_silent_times_out():
    with pytest.raises(TimedOut, match=r"no reply within 0\.05 s") as caught:
        Endpoint(0.2, 0.2).ask(call_timeout=0.05, max_tries=2)
    assert caught.value.kind == "timed_out"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_an_error_at_once_with_the_servers_words(status):
    endpoint = Endpoint(error(status, "No such model."))
    with pytest.raises(PolicyError, match=f"returned {status}: No such model"):
        endpoint.ask()
    assert endpoint.slept == []


def test_a_redirect_to_where_none_may_go_is_the_endpoints_fault():
    endpoint = Endpoint((307, {}, {"Location": "http://169.254.169.254/v1"}))
    with pytest.raises(PolicyError, match="redirected the call") as caught:
        endpoint.ask()
    assert (caught.value.transient, caught.value.is_misconfigured, endpoint.slept) == (False, False, [])


def test_a_used_up_quota_is_not_waited_for():
    endpoint = Endpoint(error(429, "You exceeded your current quota.", "insufficient_quota"))
    with pytest.raises(PolicyError, match="quota"):
        endpoint.ask()


@pytest.mark.parametrize(
    "answer",
    [
        error(400, "This model's maximum context length is 1024 tokens.", 400),
        error(400, "The decoder prompt (length 2000) is longer than the maximum model length of 1024."),
        error(400, "Too long.", "context_length_exceeded"),
        (400, {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}, {}),
    ],
)
def test_a_conversation_that_outgrew_the_model_is_a_reply_that_says_so(answer):
    reply = Endpoint(answer).ask()
    assert (reply.items, reply.finish_reason) == ([], "context_length")


def test_a_failed_response_that_may_pass_is_tried_again():
    failed = {"id": "r", "output": [], "status": "failed", "error": {"code": "server_error", "message": "Oops."}}
    refused = {**failed, "error": {"code": "invalid_prompt", "message": "Bad prompt."}}
    too_long = {**failed, "error": {"code": "context_length_exceeded", "message": "Too long."}}
    assert Endpoint(ok(failed), ok(RESPONSES_OK)).ask(wire="responses").retries == 1
    with pytest.raises(PolicyError, match="Bad prompt"):
        Endpoint(ok(refused)).ask(wire="responses")
    assert Endpoint(ok(too_long)).ask(wire="responses").finish_reason == "context_length"


@pytest.mark.parametrize("body", [{"detail": "No."}, {"message": "No."}, {"error": "No."}, "No.", {"detail": ["No."]}])
def test_errors_of_other_shapes_keep_their_message(body):
    with pytest.raises(PolicyError, match=r"No\."):
        Endpoint((400, body, {})).ask()


def test_the_key_is_in_no_message_log_or_repr(caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PolicyError) as caught:
        Endpoint(error(401, f"Incorrect API key provided: {KEY}.")).ask()
    policy = plain_policy(
        Outbound(OutboundPolicy()), base_urls=["http://a.example/v1"], model_name="m", wire="chat", api_key=KEY
    )
    seen = [str(caught.value), repr(caught.value), caplog.text, repr(policy), str(policy)]
    assert [text for text in seen if KEY in text] == []
    assert "401" in str(caught.value)
    assert "provided: [API key]" in str(caught.value)


def test_a_long_message_is_cut_to_500_characters():
    with pytest.raises(PolicyError) as caught:
        Endpoint(error(400, "x" * 5000)).ask()
    assert len(str(caught.value)) == 500


def test_an_endpoint_that_may_not_be_called_is_a_policy_error():
    async def main():
        outbound = Outbound(OutboundPolicy())
        try:
            await plain_policy(outbound, base_urls=["http://127.0.0.1:1/v1"], model_name="m", wire="chat").ask(ASK)
        finally:
            await outbound.close()

    with pytest.raises(PolicyError, match="GYMWEB_OUTBOUND_ALLOW"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("base_url", "sent"),
    [
        ("https://api.openai.com/v1", False),
        ("https://x.openai.azure.com/openai/v1", False),
        ("http://vllm.example/v1", True),
    ],
)
def test_a_seed_is_not_sent_to_responses_endpoints_that_refuse_it(base_url, sent):
    body = responses_request(ASK, model_name="m", dialect=Dialect(takes_seed=not rejects_unknown_parameters(base_url)))
    assert ("seed" in body) is sent


def events(*given):
    body = b"".join(b"event: x\ndata: " + orjson.dumps(event) + b"\n\n" for event in given)
    return 200, body, {"Content-Type": "text/event-stream; charset=utf-8"}


DONE = {"type": "response.completed", "response": {**RESPONSES_OK, "status": "completed"}}


def test_a_responses_stream_is_read_where_a_server_ignores_that_it_was_not_asked_for():
    endpoint = Endpoint(events({"type": "response.created"}, DONE))
    reply = endpoint.ask(wire="responses")
    assert (reply.items, reply.retries, endpoint.requests[0][2]["stream"]) == (RESPONSES_OK["output"], 0, False)


def test_an_interrupted_responses_stream_is_retried():
    endpoint = Endpoint(events({"type": "response.created"}), events(DONE))
    assert endpoint.ask(wire="responses").retries == 1


def test_a_responses_stream_with_an_error_tells_it():
    endpoint = Endpoint(events({"type": "error", "code": "invalid_prompt", "message": "Bad prompt."}))
    with pytest.raises(PolicyError, match=r"Bad prompt\.") as raised:
        endpoint.ask(wire="responses")
    assert not raised.value.transient


def test_a_stream_of_another_api_is_a_permanent_error_with_its_content_type():
    endpoint = Endpoint(*[events({"object": "chat.completion.chunk", "choices": []})] * 3)
    with pytest.raises(PolicyError, match=r"content type is text/event-stream") as raised:
        endpoint.ask(wire="responses")
    assert not raised.value.transient


UNREADABLE = {
    "page": (b"<html><title>Deploying</title>", "text/html", "'<html><title>Deploying</title>'"),
    "foreign": (b'{"result": "4"}', "application/json", """'{"result": "4"}'"""),
    "text": (b"upstream ok", "text/plain", "'upstream ok'"),
    "NaN": (b'{"choices": NaN, "output": NaN, "content": NaN}', "application/json", "NaN"),
    "no choices": (b'{"choices": []}', "application/json", "choices"),
    "no body": (b"", "application/json", "It begins with ''"),
}


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize("form", UNREADABLE)
def test_an_unreadable_reply_names_its_type_its_begin_and_the_remedy(form, wire):
    body, kind, begin = UNREADABLE[form]
    endpoint = Endpoint(*[(200, body, {"Content-Type": kind})] * 3)
    with pytest.raises(PolicyError) as raised:
        endpoint.ask(wire=wire)
    message = str(raised.value)
    assert f"content type is {kind}" in message
    assert begin in message
    assert "address, provider and wire" in message
    assert (raised.value.unreadable, raised.value.transient, len(endpoint.requests)) == (True, True, 3)


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("chat", b'{"error": {"message": "loading the weights"}}'),
        ("chat", b'data: {"choices": [{"delta": {"content": "4"}}]}\n\n'),
        ("responses", b'data: {"type": "response.created"}\n\n'),
        ("messages", b'event: message_start\ndata: {"type": "message_start", "message": {}}\n\n'),
    ],
)
def test_an_interrupted_reply_is_not_unreadable(wire, body):
    endpoint = Endpoint(*[(200, body, {"Content-Type": "text/plain"})] * 3)
    with pytest.raises(PolicyError) as raised:
        endpoint.ask(wire=wire)
    assert not raised.value.unreadable
    assert "content type" not in str(raised.value)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
def test_events_with_another_content_type_are_read(kind):
    choice = {"index": 0, "delta": {"content": "4"}, "finish_reason": "stop"}
    chat = b"data: " + orjson.dumps({"id": "r", "choices": [choice]}) + b"\n\ndata: [DONE]\n\n"
    [item] = Endpoint((200, chat, {"Content-Type": kind})).ask().items
    assert item["content"][0]["text"] == "4"
    reply = Endpoint((200, events(DONE)[1], {"Content-Type": kind})).ask(wire="responses")
    assert reply.items == RESPONSES_OK["output"]


def test_the_retry_after_header_of_litellm_is_honoured():
    headers = {"llm_provider-retry-after": "7"}
    endpoint = Endpoint(error(503, **headers), ok())
    endpoint.ask()
    assert endpoint.slept == [8.0]
