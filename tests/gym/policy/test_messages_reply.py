"""Replies of the Messages wire, whole and as events, in both directions."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import UNPARSED, text_of
from apps.gym.wires.chat_reply import CallsMissing, ReplyMalformed
from apps.gym.wires.messages_content import REDACTED
from apps.gym.wires.messages_reply import (
    read_messages_reply,
    write_message,
    write_messages_error,
    write_messages_usage,
    write_models,
    write_token_count,
)
from apps.gym.wires.messages_stream import (
    JoinedMessage,
    MessageEvents,
    join_messages_stream,
    write_message_stream,
)
from apps.gym.wires.protocol import Reply
from apps.gym.wires.responses_wire import ReplyFailed

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
counts = st.integers(0, 999)
usages = st.builds(
    lambda read, cached, stored, written, thought: {
        "input_tokens": read + cached + stored,
        "output_tokens": written + thought,
        "reasoning_tokens": thought,
        "cached_tokens": cached,
        **({"cache_write_tokens": stored} if stored else {}),
    },
    counts,
    counts,
    counts,
    counts,
    counts,
)
arguments = st.one_of(
    st.sampled_from(["{}", '{ "a" : 1 }', '{"b": 123456789012345678901234567890, "c": 1.50}', '{"a": "ä\\u00e4"}']),
    st.dictionaries(texts, texts, max_size=3).map(json.dumps),
)


@st.composite
def replies(draw):
    items = []
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "redacted", "call"]), max_size=5))
    for number, kind in enumerate(kinds):
        here = f"msg_1_{number}"
        match kind:
            case "text" if items and items[-1]["type"] == "message":
                items[-1]["content"].append({"type": "output_text", "text": draw(texts), "annotations": []})
            case "text":
                items.append(message_item(here, [{"type": "output_text", "text": draw(texts), "annotations": []}]))
            case "thinking":
                thought = draw(st.one_of(st.just(""), texts))
                summary = [{"type": "summary_text", "text": thought}] if thought else []
                items.append({"type": "reasoning", "id": f"rs_{here}", "summary": summary, "signature": draw(texts)})
            case "redacted":
                data = {"encrypted_content": draw(texts), "format": REDACTED}
                items.append({"type": "reasoning", "id": f"rs_{here}", "summary": [], **data})
            case "call":
                tool, given = draw(texts), draw(arguments)
                items.append(call_item("msg_1", number, call_id=f"toolu_{number}", tool=tool, arguments=given))
    finish = "tool_calls" if "call" in kinds else draw(st.sampled_from(["stop", "max_output_tokens", "content_filter"]))
    return Reply(items=items, finish_reason=finish, usage=draw(usages), model="m", response_id="msg_1")


@settings(max_examples=200, deadline=None)
@given(replies())
def test_a_reply_survives_the_way_to_a_stream_and_back_in_every_character(reply):
    stream = write_message_stream(reply, name="msg_1", model="m")
    assert read_messages_reply(join_messages_stream(stream)) == reply


def with_parsed_arguments(reply):
    return [{**item, "arguments": json.loads(item.get("arguments", "{}"))} for item in reply.items]


@settings(max_examples=200, deadline=None)
@given(replies())
def test_a_reply_survives_the_way_to_a_message_and_back(reply):
    body = json.dumps(write_message(reply, name="msg_1", model="m")).encode()
    back = read_messages_reply(body)
    assert with_parsed_arguments(back) == with_parsed_arguments(reply)
    assert (back.finish_reason, back.usage, back.response_id) == (reply.finish_reason, reply.usage, "msg_1")


def body_of(**fields):
    return orjson.dumps(
        {"id": "msg_1", "model": "m", "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn", **fields}
    )


def test_input_tokens_include_tokens_of_the_cache():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    read = read_messages_reply(body_of(usage=usage)).usage
    cache = {"cached_tokens": 100, "cache_write_tokens": 20}
    assert read == {"input_tokens": 125, "output_tokens": 7, "reasoning_tokens": 4, **cache}
    assert write_messages_usage(read) == usage


@pytest.mark.parametrize("usage", [None, 7, {}, {"input_tokens": None}, {"input_tokens": "x", "output_tokens": -1}])
def test_counts_that_are_none_are_missing(usage):
    assert read_messages_reply(body_of(usage=usage)).usage == {}


@pytest.mark.parametrize(
    ("reason", "finish", "server"),
    [
        ("end_turn", "stop", ""),
        ("stop_sequence", "stop", ""),
        ("max_tokens", "max_output_tokens", ""),
        ("refusal", "content_filter", ""),
        ("model_context_window_exceeded", "context_length", ""),
        ("pause_turn", "stop", "pause_turn"),
        (None, "stop", ""),
        ([], "stop", ""),
    ],
)
def test_each_stop_reason_has_its_finish_reason(reason, finish, server):
    reply = read_messages_reply(body_of(stop_reason=reason))
    assert (reply.finish_reason, reply.server_finish_reason) == (finish, server)


def test_a_call_that_is_announced_and_missing_is_an_error():
    with pytest.raises(CallsMissing):
        read_messages_reply(body_of(content=[], stop_reason="tool_use"))


def test_a_text_with_the_stop_reason_of_calls_is_kept():
    reply = read_messages_reply(body_of(content=[{"type": "text", "text": "4"}], stop_reason="tool_use"))
    assert (text_of(reply.items[0]), reply.finish_reason) == ("4", "stop")


CALL = b'{"type": "tool_use", "id": "t1", "name": "add", "input": %s}'


@pytest.mark.parametrize(
    ("written", "arguments"),
    [(b'{ "a": 1.50 }', '{ "a": 1.50 }'), (b"null", "{}"), (b'"{\\"a\\": 1}"', '{"a": 1}')],
)
def test_arguments_have_the_characters_of_the_model(written, arguments):
    body = b'{"id": "msg_1", "stop_reason": "tool_use", "content": [' + CALL % written + b"]}"
    [call] = read_messages_reply(body).items
    assert (call["call_id"], call["name"], call["arguments"]) == ("t1", "add", arguments)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"content": "4"}', b'{"content": [7]}', b'{"content": [{}]}'])
def test_a_body_that_is_no_message_is_malformed(body):
    with pytest.raises(ReplyMalformed):
        read_messages_reply(body)


def test_an_error_in_place_of_a_message_is_told_with_its_type():
    with pytest.raises(ReplyFailed, match="Overloaded") as failure:
        read_messages_reply(orjson.dumps(write_messages_error(529, "Overloaded")))
    assert (failure.value.code, failure.value.retryable) == ("overloaded_error", True)


def events(*given):
    return b"".join(b"event: x\ndata: " + orjson.dumps(event) + b"\n\n" for event in given)


START = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 9}}}
STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


def delta(kind, index=0, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def test_a_stream_is_joined_from_its_deltas():
    stream = events(
        START,
        {"type": "ping"},
        BLOCK,
        delta("text_delta", text="Hel"),
        delta("text_delta", text="lo"),
        delta("citations_delta", citation={}),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t", "name": "a", "input": {}},
        },
        delta("input_json_delta", 1, partial_json=""),
        delta("input_json_delta", 1, partial_json='{"a":'),
        delta("input_json_delta", 1, partial_json="  1}"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )
    reply = read_messages_reply(join_messages_stream(stream))
    said, call = reply.items
    assert (said["content"][0]["text"], call["arguments"], reply.finish_reason) == (
        "Hello",
        '{"a":  1}',
        "tool_calls",
    )
    assert (reply.usage["input_tokens"], reply.usage["output_tokens"]) == (9, 3)


def test_arguments_that_were_cut_off_are_kept_as_text():
    stream = events(
        START,
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "a", "input": {}},
        },
        delta("input_json_delta", partial_json='{"a": "lon'),
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 3}},
    )
    reply = read_messages_reply(join_messages_stream(stream))
    assert (reply.items[0]["arguments"], reply.finish_reason) == ('{"a": "lon', "max_output_tokens")
    assert write_message(reply, name="n", model="m")["content"][0]["input"] == {UNPARSED: '{"a": "lon'}
    assert read_messages_reply(join_messages_stream(write_message_stream(reply, name="msg_1", model="m"))) == reply


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"", ReplyMalformed),
        (b"data: {oops\n\n", ReplyMalformed),
        (b"data: 7\n\n", ReplyMalformed),
        (events(START, BLOCK), ReplyMalformed),
        (events(START, delta("text_delta", text="x"), STOP), ReplyMalformed),
        (events(START, write_messages_error(529, "Overloaded")), ReplyFailed),
    ],
)
def test_a_stream_that_breaks_is_an_error(stream, error):
    with pytest.raises(error):
        join_messages_stream(stream)


def test_pieces_are_written_as_they_come():
    written = MessageEvents(name="msg_1", model="m")
    stream = [
        written.start({"input_tokens": 5, "cached_tokens": 2}),
        b'event: ping\ndata: {"type": "ping"}\n\n',
        written.thinking("Let me "),
        written.thinking("see."),
        written.signature("c2ln"),
        written.text("It is "),
        written.text("4."),
        written.call("toolu_1", "add"),
        written.arguments('{"a"'),
        written.arguments(": 1}"),
        written.end("tool_use", {"input_tokens": 5, "cached_tokens": 2, "output_tokens": 8}),
    ]
    joined = JoinedMessage()
    kinds = []
    for piece in stream:
        for line in piece.splitlines():
            if line.startswith(b"data: "):
                event = orjson.loads(line[6:])
                kinds.append(event["type"])
                joined.add(event)
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    assert (kinds[0], kinds[1], kinds[-1]) == ("message_start", "ping", "message_stop")
    reply = read_messages_reply(joined.body())
    thought, said, call = reply.items
    assert (thought["summary"][0]["text"], thought["signature"]) == ("Let me see.", "c2ln")
    assert (said["content"][0]["text"], call["arguments"], call["call_id"]) == ("It is 4.", '{"a": 1}', "toolu_1")
    assert (reply.usage["input_tokens"], reply.usage["cached_tokens"], reply.usage["output_tokens"]) == (5, 2, 8)


def test_foreign_reasoning_gets_an_empty_signature():
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}]}
    reply = Reply(items=[thought], finish_reason="stop")
    message = write_message(reply, name="n", model="m")
    assert message["content"] == [{"type": "thinking", "thinking": "Hm", "signature": ""}]


def test_the_other_bodies_have_the_form_of_the_api():
    assert write_messages_error(429, "Slow down.") == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "Slow down."},
    }
    assert [write_messages_error(status, "")["error"]["type"] for status in (400, 401, 403, 404, 413, 500, 529)] == [
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "api_error",
        "overloaded_error",
    ]
    with pytest.raises(ReplyFailed, match=r"Slow down\."):
        join_messages_stream(events(START, write_messages_error(429, "Slow down.")))
    models = write_models(["a", "b"])
    assert ([card["id"] for card in models["data"]], models["first_id"], models["last_id"]) == (["a", "b"], "a", "b")
    short = write_token_count([{"role": "user", "content": "Hi"}], [])["input_tokens"]
    assert 0 < short < write_token_count([{"role": "user", "content": "Hi" * 99}], [])["input_tokens"]
