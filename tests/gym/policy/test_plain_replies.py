"""A reply that is read with one typed decode gives the same turn as one that is looked at closely."""

import msgspec
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.traces.responses import _complete, complete_item
from apps.gym.wires import chat_reply
from apps.gym.wires.chat_reply import ReplyMalformed, read_chat_reply
from apps.gym.wires.plain_reply import read_plain_reply

ODD = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats(0, 9)
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
)
TEXTS = st.text(max_size=20) | st.just("<think>a</think>b")


def mostly(usual):
    return st.integers(0, 19).flatmap(lambda drawn: ODD if drawn == 0 else usual)


CALLS = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": mostly(TEXTS)}, optional={"arguments": mostly(TEXTS)})},
        optional={"id": mostly(TEXTS), "type": st.just("function")},
    ),
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": mostly(TEXTS | st.none()),
        "tool_calls": mostly(CALLS | st.none()),
        "refusal": mostly(st.none()),
        "reasoning_content": mostly(st.none()),
        "reasoning": mostly(st.none()),
        "function_call": st.none(),
        "annotations": mostly(st.just([])),
    },
)
COUNT = mostly(st.integers(0, 99))
IDS = st.lists(mostly(st.integers(0, 2**33)), max_size=3)
ENTRIES = st.lists(
    mostly(st.fixed_dictionaries({"token": TEXTS, "logprob": mostly(st.floats(-9, 0)), "top_logprobs": st.just([])})),
    max_size=3,
)
LOGPROBS = mostly(st.fixed_dictionaries({}, optional={"content": mostly(ENTRIES | st.none())}) | st.none())
USAGE = st.fixed_dictionaries(
    {"prompt_tokens": COUNT, "completion_tokens": COUNT},
    optional={
        "prompt_tokens_details": mostly(
            st.fixed_dictionaries({}, optional={"cached_tokens": COUNT, "cache_write_tokens": COUNT})
        ),
        "completion_tokens_details": mostly(st.none() | st.fixed_dictionaries({"reasoning_tokens": COUNT})),
    },
)
REPLIES = st.fixed_dictionaries(
    {
        "id": mostly(st.just("chatcmpl-1")),
        "model": mostly(st.just("m")),
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": MESSAGES, "finish_reason": mostly(st.sampled_from(["stop", "tool_calls", "length"]))},
                optional={"token_ids": mostly(IDS | st.none()), "logprobs": LOGPROBS},
            ),
            min_size=1,
            max_size=2,
        ),
        "usage": mostly(USAGE),
    },
    optional={"prompt_token_ids": mostly(IDS | st.none())},
)


def read_closely(body, *, asked_tokens):
    kept, chat_reply.read_plain_reply = chat_reply.read_plain_reply, lambda body, **_: None
    try:
        return read_chat_reply(body, asked_tokens=asked_tokens)
    finally:
        chat_reply.read_plain_reply = kept


@settings(max_examples=500)
@given(REPLIES, st.booleans())
def test_both_ways_give_the_same_turn(reply, asked_tokens):
    try:
        body = orjson.dumps(reply)
    except TypeError:  # an integer of over 64 bits
        body = msgspec.json.encode(reply)
    plain = read_plain_reply(body, asked_tokens=asked_tokens)
    if plain is None:
        return
    assert plain == read_closely(body, asked_tokens=asked_tokens)
    for number, item in enumerate(plain.items):
        assert complete_item(item, number) == _complete(item, number)


def test_the_usual_reply_is_read_at_once_and_a_call_that_was_announced_and_is_missing_is_refused():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    for message, finish in (({"content": "Hi"}, "stop"), ({"content": None, "tool_calls": [call]}, "tool_calls")):
        reply = {"id": "r", "model": "m", "usage": usage, "choices": [{"message": message, "finish_reason": finish}]}
        assert read_plain_reply(orjson.dumps(reply)) is not None
    reply["choices"][0]["message"]["tool_calls"] = []
    assert read_plain_reply(orjson.dumps(reply)) is None
    try:
        read_chat_reply(orjson.dumps(reply))
    except ReplyMalformed as error:
        assert "has no tool call" in str(error)
    else:
        raise AssertionError("it was not refused")
