"""HttpPolicy over the Messages wire, against a server with recorded replies."""

import asyncio

import orjson
import pytest

from apps.gym.calls.flow_control import Gate
from apps.gym.calls.rate_control import Grant
from apps.gym.errors import PolicyError
from apps.gym.traces.items import message
from apps.gym.wires.pricing import Prices
from apps.gym.wires.protocol import Ask
from tests.gym.policy.test_http import KEY, Endpoint

QUESTION = message("user", "What is 6 * 7?")
TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}
THINKING = {"type": "thinking", "thinking": "Six sevens.", "signature": "EqQBCkYIBxgC/+=="}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgB/+=="}
CALL = {"type": "tool_use", "id": "toolu_01A", "name": "add", "input": {"a": 6}}
REPLY = {
    "id": "msg_01X",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [THINKING, HIDDEN, {"type": "text", "text": "Let me add."}, CALL],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 25,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 75,
        "output_tokens": 40,
    },
}
STREAM_TYPE = {"Content-Type": "text/event-stream; charset=utf-8"}


def event(kind, **fields):
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind, **fields}) + b"\n\n"


def delta(index, kind, **fields):
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


STREAM = b"".join(
    [
        event("message_start", message={**REPLY, "content": [], "stop_reason": None}),
        event("ping"),
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="Six "),
        delta(0, "thinking_delta", thinking="sevens."),
        delta(0, "signature_delta", signature=THINKING["signature"]),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block=HIDDEN),
        event("content_block_stop", index=1),
        event("content_block_start", index=2, content_block={"type": "text", "text": ""}),
        delta(2, "text_delta", text="Let me "),
        delta(2, "text_delta", text="add."),
        event("content_block_stop", index=2),
        event("content_block_start", index=3, content_block={**CALL, "input": {}}),
        delta(3, "input_json_delta", partial_json='{"a"'),
        delta(3, "input_json_delta", partial_json=":6}"),
        event("content_block_stop", index=3),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 40}),
        event("message_stop"),
    ]
)


def error(status, kind="api_error", text="Oops.", **headers):
    return status, {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}, headers


def ask(*answers, ask=None, **given):
    endpoint = Endpoint(*answers)
    return endpoint, endpoint.ask(ask or Ask(items=[QUESTION], tools=[TOOL]), wire="messages", **given)


@pytest.mark.parametrize("answer", [(200, REPLY, {}), (200, STREAM, STREAM_TYPE)])
def test_a_reply_is_kept_whole_and_goes_back_whole(answer):
    endpoint, reply = ask(answer)
    path, headers, body = endpoint.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/messages", f"Bearer {KEY}")
    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": "What is 6 * 7?"}],
        "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
    }
    thought, hidden, said, call = reply.items
    assert (thought["summary"][0]["text"], thought["signature"]) == ("Six sevens.", THINKING["signature"])
    assert (hidden["encrypted_content"], said["content"][0]["text"]) == (HIDDEN["data"], "Let me add.")
    assert (call["call_id"], call["name"], orjson.loads(call["arguments"])) == ("toolu_01A", "add", {"a": 6})
    assert (reply.finish_reason, reply.model, reply.response_id) == ("tool_calls", "claude-x", "msg_01X")
    output = {"type": "function_call_output", "call_id": "toolu_01A", "output": "42"}
    endpoint, _ = ask(answer, ask=Ask(items=[QUESTION, *reply.items, output]))
    _, turn, result = endpoint.requests[0][2]["messages"]
    assert turn == {"role": "assistant", "content": REPLY["content"]}
    assert result["content"] == [{"type": "tool_result", "tool_use_id": "toolu_01A", "content": "42"}]


def test_tokens_of_the_cache_are_counted_and_have_their_prices():
    _, reply = ask((200, REPLY, {}))
    cache = {"cached_tokens": 100, "cache_write_tokens": 75}
    assert reply.usage == {"input_tokens": 200, "output_tokens": 40, "reasoning_tokens": 0, **cache}
    prices = Prices(input=3.0, cached_input=0.3, cache_write=3.75, output=15.0)
    assert prices.cost(reply.usage) == pytest.approx((25 * 3.0 + 100 * 0.3 + 75 * 3.75 + 40 * 15.0) / 1e6)


@pytest.mark.parametrize("status", [408, 429, 500, 504, 529])
def test_a_passing_failure_is_tried_again_after_the_time_that_it_names(status):
    endpoint, reply = ask(error(status), error(status, **{"retry-after": "7"}), (200, REPLY, {}))
    assert (reply.retries, endpoint.slept) == (2, [1.0, 8.0])


@pytest.mark.parametrize("status", [429, 529])
def test_a_throttled_call_waits_at_its_gate_and_is_no_try(status):
    observed = []

    def grant(gate):
        asyncio.get_running_loop().call_later(0.05, gate.apply, Grant(rate=20.0, starts=[0.0]))

    endpoint = Endpoint(error(status, "overloaded_error", "Busy."), (200, REPLY, {}))
    reply = endpoint.ask(
        Ask(items=[QUESTION]),
        wire="messages",
        gate=Gate(grant),
        max_tries=1,
        observe=lambda outcome, said="": observed.append((outcome, said)),
    )
    assert (reply.retries, len(endpoint.requests)) == (0, 2)
    assert observed == [("throttled", f"{status}: Busy."), ("ok", "")]


def test_a_conversation_that_outgrew_the_model_is_a_reply_that_says_so():
    _, reply = ask(error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"))
    assert (reply.items, reply.finish_reason) == ([], "context_length")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000", 2000),
        (
            "'max_tokens' is too large: 8192. This model's maximum context length is 1024 tokens and your request has "
            "20 input tokens (8192 > 1024 - 20).",
            1004,
        ),
        (
            "This model's maximum context length is 1024 tokens. However, you requested 8192 output tokens and your "
            "prompt contains at least 20 input tokens.",
            1004,
        ),
    ],
)
def test_a_limit_that_nobody_chose_is_shortened_once_to_what_the_input_leaves(text, left):
    refusal = error(400, "invalid_request_error", text)
    endpoint, reply = ask(refusal, (200, REPLY, {}))
    assert [body["max_tokens"] for _, _, body in endpoint.requests] == [8192, left]
    assert (reply.finish_reason, reply.retries, reply.sampling["max_output_tokens"]) == ("tool_calls", 0, left)
    endpoint, reply = ask(refusal, refusal)
    assert (len(endpoint.requests), reply.finish_reason) == (2, "context_length")
    endpoint, reply = ask(refusal, ask=Ask(items=[QUESTION], sampling={"max_output_tokens": 5000}))
    assert (len(endpoint.requests), reply.finish_reason) == (1, "context_length")


def test_a_limit_above_that_of_the_model_is_shortened_unless_somebody_chose_it():
    text = "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for this model"
    refusal = error(400, "invalid_request_error", text)
    endpoint, reply = ask(refusal, (200, REPLY, {}))
    assert [body["max_tokens"] for _, _, body in endpoint.requests] == [8192, 4096]
    assert reply.finish_reason == "tool_calls"
    with pytest.raises(PolicyError, match="maximum allowed number") as caught:
        ask(refusal, ask=Ask(items=[QUESTION], sampling={"max_output_tokens": 8192}))
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error")]
)
def test_a_refusal_is_an_error_at_once_with_the_servers_words(status, kind):
    with pytest.raises(PolicyError, match=rf"returned {status}: No\.") as caught:
        ask(error(status, kind, "No."))
    assert not caught.value.transient


def test_a_used_up_credit_is_not_waited_for():
    with pytest.raises(PolicyError) as caught:
        ask(error(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."))
    assert caught.value.refused_by == "quota"


def test_a_stream_that_breaks_is_tried_again():
    cut = STREAM[: STREAM.index(b"event: message_delta")]
    overloaded = cut + event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    _, reply = ask((200, cut, STREAM_TYPE), (200, overloaded, STREAM_TYPE), (200, STREAM, STREAM_TYPE))
    assert (reply.retries, len(reply.items)) == (2, 4)
    refused = cut + event("error", error={"type": "invalid_request_error", "message": "No."})
    with pytest.raises(PolicyError, match=r"No\."):
        ask((200, refused, STREAM_TYPE))
