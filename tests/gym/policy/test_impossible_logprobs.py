"""Replies whose log probabilities or token counts are impossible: the text is kept, and the tokens are left out."""

import json

import msgspec
import orjson
import pytest

from apps.gym.errors import PolicyError
from apps.gym.json_constants import null_constants
from apps.gym.traces.items import function_calls, text_of
from apps.gym.wires.dialect import Dialect
from tests.gym.policy.test_http import ASK, Endpoint, events

TOKENS = Dialect(asks_tokens=True)
NAN, INFINITE = float("nan"), float("-inf")
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": NaN, "b": "-Infinity"}'}}


def chat(logprob, *, usage=2, place="token_ids", **message):
    """A reply of two tokens, written by Python, whose JSON may have NaN."""
    logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": logprob}]}
    choice = {"message": {"content": "NaN or -Infinity", **message}, "finish_reason": "stop", "logprobs": logprobs}
    choice |= {"token_ids": [7, 8]} if place == "token_ids" else {place: {"token_ids": [7, 8]}}
    counts = {"prompt_tokens": 1, "completion_tokens": usage, "cost": NAN}
    return json.dumps({"id": "c", "model": "m", "choices": [choice], "usage": counts, "prompt_token_ids": [1]}).encode()


def chunk(text, logprobs=(), ids=None, finish=None, **fields):
    told = {"content": [{"token": "t", "logprob": one} for one in logprobs]} if logprobs else None
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish, "logprobs": told}
    choice |= {"token_ids": ids} if ids else {}
    return json.dumps({"id": "c", "model": "m", "choices": [choice], **fields})


def stream(*chunks):
    body = "".join(f"data: {one}\n\n" for one in [*chunks, "[DONE]"])
    return 200, body.encode(), {"Content-Type": "text/event-stream"}


CASES = [
    (NAN, "logprob_not_finite"),
    (INFINITE, "logprob_not_finite"),
    (float("inf"), "logprob_not_finite"),
    ("NaN", "logprob_not_finite"),
    (None, "logprob_not_finite"),
    (0.5, "logprob_above_0"),
    (3.2, "logprob_above_0"),
    (-9999.0, "logprob_placeholder"),
    (-1.0, ""),
    (9e-6, ""),
]


@pytest.mark.parametrize(("logprob", "note"), CASES)
@pytest.mark.parametrize("place", ["token_ids", "provider_specific_fields"])
def test_a_chat_reply_is_kept_and_its_tokens_are_left_out(logprob, note, place):
    reply = Endpoint(chat(logprob, place=place)).ask(dialect=TOKENS)
    assert (text_of(reply.items[-1]), reply.retries, reply.tokens_note) == ("NaN or -Infinity", 0, note)
    assert (reply.tokens is None) is bool(note)
    assert reply.usage["output_tokens"] == 2


@pytest.mark.parametrize(("logprob", "note"), CASES)
def test_a_streamed_reply_is_kept_and_every_part_reaches_the_reader(logprob, note):
    seen = []
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    chunks = [chunk("R=", [-0.5], [10], prompt_token_ids=[1]), chunk("1", [logprob], [11]), chunk(".", finish="stop")]
    endpoint = Endpoint(stream(*chunks, json.dumps({"choices": [], **usage})))
    ask = msgspec.structs.replace(ASK, on_delta=lambda delta: seen.append(delta.text))
    reply = endpoint.ask(ask, dialect=TOKENS)
    assert (text_of(reply.items[-1]), reply.retries, reply.tokens_note) == ("R=1.", 0, note)
    assert "".join(seen) == "R=1."


@pytest.mark.parametrize("is_live", [True, False])
def test_a_stream_without_the_ids_of_a_chunk_has_no_tokens(is_live):
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 3}}
    chunks = [chunk("R=", [-0.5, -0.25], [10, 11], prompt_token_ids=[1]), chunk("1", finish="stop", **usage)]
    ask = msgspec.structs.replace(ASK, on_delta=lambda *_: None) if is_live else ASK
    reply = Endpoint(stream(*chunks)).ask(ask, dialect=TOKENS)
    assert (text_of(reply.items[-1]), reply.tokens, reply.tokens_note) == ("R=1", None, "usage_differs")


def test_a_count_that_is_no_number_is_unknown_and_the_tokens_are_kept():
    reply = Endpoint(chat(-1.0, usage=NAN)).ask(dialect=TOKENS)
    assert (reply.tokens_note, reply.usage) == ("", {"input_tokens": 1, "reasoning_tokens": 0, "cached_tokens": 0})


def test_the_arguments_of_a_call_keep_their_constants():
    reply = Endpoint(chat(NAN, tool_calls=[CALL])).ask(dialect=TOKENS)
    assert function_calls(reply.items)[0]["arguments"] == CALL["function"]["arguments"]
    # As an object they would change: the reply is refused, as before.
    parsed = {**CALL, "function": {"name": "add", "arguments": {"a": NAN}}}
    with pytest.raises(PolicyError, match="malformed"):
        Endpoint(*[chat(-1.0, tool_calls=[parsed])] * 3).ask(dialect=TOKENS)


TEXT = {"type": "output_text", "text": "4", "annotations": [], "logprobs": [{"token": "4", "logprob": NAN}]}
RESPONSE = {
    "id": "r",
    "model": "m",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [TEXT]}],
    "usage": {"input_tokens": 1, "output_tokens": NAN},
}


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_reply_of_the_responses_api_is_kept(is_stream):
    body = json.dumps(RESPONSE)
    end = f'data: {{"type": "response.completed", "response": {body}}}\n\n'.encode()
    answer = (200, end, events({})[2]) if is_stream else body.encode()
    reply = Endpoint(answer).ask(wire="responses")
    assert (text_of(reply.items[-1]), reply.retries, reply.usage["input_tokens"]) == ("4", 0, 1)
    assert "output_tokens" not in reply.usage


def test_a_message_of_the_messages_api_is_kept():
    usage = {"input_tokens": 1, "output_tokens": NAN}
    body = {"id": "m", "model": "m", "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn"}
    reply = Endpoint(json.dumps({**body, "usage": usage}).encode()).ask(wire="messages")
    assert (text_of(reply.items[-1]), reply.retries, "output_tokens" in reply.usage) == ("4", 0, False)


@pytest.mark.parametrize(
    ("body", "finite"),
    [
        (b'{"a": NaN, "b": [-Infinity,Infinity]}', b'{"a": null, "b": [null,null]}'),
        (b'{"NaN": "a \\"NaN, \\\\", "b": NaN}', b'{"NaN": "a \\"NaN, \\\\", "b": null}'),
        (b'{"arguments": {}, "b": NaN}', b'{"arguments": {}, "b": null}'),
        (b'{"arguments": {"x": 1}, "b": NaN}', None),
        (b'{"input": [NaN]}', None),
        (b'{"a": 1}', None),
    ],
)
def test_only_constants_outside_of_texts_and_arguments_become_null(body, finite):
    assert null_constants(body) == (finite or body)
    if finite:
        orjson.loads(finite)


def test_a_long_reply_is_searched_in_linear_time():
    body = b'{"text": "' + b"\\\\ a" * 500_000 + b'", "b": NaN, "c": "' + b'x"'
    assert null_constants(body).count(b"null") == 1
