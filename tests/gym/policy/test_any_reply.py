"""Whatever an endpoint sends is a reply or a PolicyError, soon, and never quotes our key."""

import asyncio
import itertools

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.calls.http_connection import reply_listener
from apps.gym.calls.observers import Outcome, ignore
from apps.gym.calls.outbound import OutboundReply
from apps.gym.errors import PolicyError
from apps.gym.traces.items import message, text_of
from apps.gym.wires.chat_reply import ReplyMalformed, read_chat_reply
from apps.gym.wires.chat_stream import ChatStreamReader, join_chat_stream
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.messages_reply import read_messages_reply
from apps.gym.wires.messages_stream import join_messages_stream
from apps.gym.wires.openai_http import HttpPolicy
from apps.gym.wires.protocol import Ask, Reply
from tests.deadlines import cpu_deadline

KEY = "sk-test-0123456789abcdef"
ASK = Ask(items=[message("user", "Hi")])


class Says:
    """A sender whose endpoint says the same each time."""

    servers = ("http://model.example/v1",)

    def __init__(self, body, content_type="application/json", status=200):
        self.reply = OutboundReply(status, {"Content-Type": content_type}, body, {})

    def pack(self, body):
        return body

    async def send(self, packed, session, tries):
        if (listen := reply_listener.get()) is not None:
            listen(self.reply.body)
        return self.reply

    async def get(self, path, *, server, at_root=False):
        return self.reply


def ask(body, *, wire="chat", content_type="application/json", status=200, observe=ignore, on_delta=None):
    policy = HttpPolicy(
        Says(body, content_type, status),
        model_name="m",
        wire=wire,
        dialect=Dialect(asks_tokens=True),
        secrets=[KEY],
        max_tries=1,
        observe=observe,
    )

    async def call():
        reply = await policy.ask(msgspec.structs.replace(ASK, on_delta=on_delta))
        assert reply_listener.get() is None  # The context of the task outlives the call.
        return reply

    return asyncio.run(call())


def stream(*chunks):
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def delta(finish_reason=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


# ── anything ─────────────────────────────────────────────────────────────────────────────────────────────────────────

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def odd(**fields):
    """An object with some of these fields, each as it should be or as anything else."""
    return st.fixed_dictionaries({}, optional={name: value | anything for name, value in fields.items()}) | anything


function = odd(name=st.text(max_size=5), arguments=st.text(max_size=5))
call = odd(index=st.integers(-2, 3), id=st.text(max_size=5), function=function)
texts = {name: st.text(max_size=5) for name in ("content", "refusal", "reasoning", "reasoning_content")}
spoken = odd(**texts, tool_calls=st.lists(call, max_size=3), function_call=function, annotations=st.lists(anything))
logprobs = odd(content=st.lists(odd(logprob=st.floats(-9, 0)), max_size=2))
ending = st.sampled_from(["stop", "length", "tool_calls", "function_call", "abort", "model_length"])
choice = odd(
    index=st.just(0),
    delta=spoken,
    message=spoken,
    finish_reason=ending,
    token_ids=st.lists(anything),
    logprobs=logprobs,
)
details = odd(cached_tokens=st.integers(), reasoning_tokens=st.integers())
usage = odd(
    prompt_tokens=st.integers(),
    completion_tokens=st.integers(),
    input_tokens=st.integers(),
    output_tokens=st.integers(),
    prompt_tokens_details=details,
    completion_tokens_details=details,
    input_tokens_details=details,
    output_tokens_details=details,
)
chat = odd(
    id=st.text(max_size=5),
    choices=st.lists(choice, max_size=2),
    usage=usage,
    error=anything,
    prompt_token_ids=st.lists(anything, max_size=3),
)
part = odd(type=st.sampled_from(["output_text", "refusal", "reasoning_text"]), text=st.text(), refusal=st.text())
item = odd(
    type=st.sampled_from(["message", "function_call", "reasoning", "function_call_output"]),
    id=st.text(max_size=5),
    role=st.just("assistant"),
    content=st.lists(part, max_size=2),
    summary=st.lists(part, max_size=2),
    call_id=st.text(max_size=5),
    name=st.text(max_size=5),
    arguments=st.text(max_size=5),
)
responses = odd(
    id=st.text(max_size=5),
    output=st.lists(item, max_size=3),
    status=st.sampled_from(["completed", "incomplete", "failed"]),
    incomplete_details=odd(reason=st.sampled_from(["max_output_tokens", "content_filter"])),
    error=odd(code=st.text(max_size=5), message=st.text(max_size=5)),
    usage=usage,
)


block = odd(
    type=st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"]),
    text=st.text(max_size=5),
    thinking=st.text(max_size=5),
    signature=st.text(max_size=5),
    data=st.text(max_size=5),
    id=st.text(max_size=5),
    name=st.text(max_size=5),
    input=st.dictionaries(st.text(max_size=5), anything, max_size=2),
)
messages_usage = odd(
    input_tokens=st.integers(),
    output_tokens=st.integers(),
    cache_read_input_tokens=st.integers(),
    cache_creation_input_tokens=st.integers(),
    output_tokens_details=odd(thinking_tokens=st.integers()),
)
stop_reason = st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal"])
messages = odd(
    id=st.text(max_size=5),
    content=st.lists(block, max_size=3),
    stop_reason=stop_reason,
    usage=messages_usage,
    error=odd(type=st.text(max_size=5), message=st.text(max_size=5)),
)
block_delta = odd(
    type=st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta"]),
    text=st.text(max_size=5),
    thinking=st.text(max_size=5),
    signature=st.text(max_size=5),
    partial_json=st.text(max_size=5),
)
event = odd(
    type=st.sampled_from(
        ["message_start", "content_block_start", "content_block_delta", "message_delta", "error", "ping"]
    ),
    message=messages,
    index=st.integers(0, 1),
    content_block=block,
    delta=block_delta | odd(stop_reason=stop_reason),
    usage=messages_usage,
    error=odd(type=st.text(max_size=5), message=st.text(max_size=5)),
)


def is_an_outcome(body, **given):
    try:
        reply = ask(body, **given)
    except PolicyError as error:
        return str(error) != ""
    assert isinstance(reply, Reply)
    assert all(count >= 0 for count in reply.usage.values())
    assert all(isinstance(text_of(item), str) for item in reply.items)
    return msgspec.json.decode(msgspec.json.encode(reply.items)) == reply.items


@given(chat)
def test_any_json_over_chat_is_a_reply_or_a_policy_error(body):
    assert is_an_outcome(msgspec.json.encode(body))


@given(st.lists(chat, max_size=4))
def test_any_chunks_of_a_stream_are_a_reply_or_a_policy_error(chunks):
    body = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in [*chunks, delta("stop")])
    assert is_an_outcome(body, content_type="text/event-stream")


@given(responses)
def test_any_json_over_responses_is_a_reply_or_a_policy_error(body):
    assert is_an_outcome(msgspec.json.encode(body), wire="responses")


@given(messages)
def test_any_json_over_messages_is_a_reply_or_a_policy_error(body):
    assert is_an_outcome(msgspec.json.encode(body), wire="messages")


@given(st.lists(event, max_size=6))
def test_any_events_of_a_stream_are_a_reply_or_a_policy_error(events):
    ending = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    body = b"".join(b"data: " + msgspec.json.encode(one) + b"\n\n" for one in [*events, ending])
    assert is_an_outcome(body, wire="messages", content_type="text/event-stream")


@given(anything | odd(error=odd(message=anything, code=anything), detail=anything), st.sampled_from([400, 401, 422]))
def test_any_json_with_a_refusal_is_a_reply_or_a_policy_error(body, status):
    assert is_an_outcome(msgspec.json.encode(body), status=status)


DEEP = b"[" * 300 + b"]" * 300
DEEPER = b"[" * 100_000 + b"]" * 100_000
HALF = rb'"\ud800"'


@pytest.mark.parametrize("value", [DEEP, DEEPER, HALF, rb'"\udc00"', b"1" + b"0" * 4000, b"1e999"])
@pytest.mark.parametrize(
    ("frame", "given"),
    [
        (b'{"choices": [{"message": {"content": "x", "reasoning": %s}}]}', {}),
        (b'{"choices": [{"message": {"content": "x"}}], "id": %s}', {}),
        (b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": %s}}]}}]}', {}),
        (b'{"choices": [{"message": {"content": "x", "annotations": [{"a": %s}]}}]}', {}),
        (b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": %s}}', {}),
        (b'data: {"choices": [{"finish_reason": "stop"}], "usage": %s}\n\n', {"content_type": "text/event-stream"}),
        (b'data: {"error": %s}\n\n', {"content_type": "text/event-stream"}),
        (b'{"output": [{"type": "message", "role": "assistant", "content": "x", "a": %s}]}', {"wire": "responses"}),
        (b'{"error": {"message": %s}}', {"status": 400}),
        (b'{"content": [{"type": "tool_use", "input": %s}]}', {"wire": "messages"}),
        (b'{"content": [{"type": "text", "text": %s}]}', {"wire": "messages"}),
        (b'{"content": [], "usage": {"input_tokens": %s}}', {"wire": "messages"}),
        (
            b'data: {"type": "content_block_start", "index": 0, "content_block": %s}\n\n'
            b'data: {"type": "message_delta"}\n\n',
            {"wire": "messages", "content_type": "text/event-stream"},
        ),
    ],
)
def test_deep_large_and_broken_replies_do_not_crash(frame, given, value):
    assert is_an_outcome(frame % value, **given)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_of_16_mb_in_200_000_chunks_is_joined():
    """`make bench BENCH=calls` holds the time that this takes to a budget."""
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"abcdefghijklmnopqrstuvwxy"}}]}\n\n'
    body = piece * 200_000 + stream(delta("stop"))
    with cpu_deadline():
        joined = join_chat_stream(body)
    assert text_of(read_chat_reply(joined).items[0]) == "abcdefghijklmnopqrstuvwxy" * 200_000


def test_arguments_in_200_000_pieces_are_joined():
    piece = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1234567890"}}]}}]}\n\n'
    first = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])
    body = stream(first).removesuffix(b"data: [DONE]\n\n") + piece * 200_000 + stream(delta("tool_calls"))
    with cpu_deadline():
        joined = join_chat_stream(body)
    assert read_chat_reply(joined).items[0]["arguments"] == "1234567890" * 200_000


def test_a_message_in_200_000_deltas_is_joined():
    piece = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"abcdefghij"}}\n\n'
    begin = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    end = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    with cpu_deadline():
        joined = join_messages_stream(begin + piece * 200_000 + end)
    assert text_of(read_messages_reply(joined).items[0]) == "abcdefghij" * 200_000


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b'data: {"id":"c"}', b"data: {", b""])
def test_a_stream_that_arrives_in_pieces_is_joined_alike(newline, end):
    chunks = [delta(content="4"), delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f"}}]), delta("stop")]
    body = (stream(*chunks).removesuffix(b"data: [DONE]\n\n") + end).replace(b"\n", newline)
    for size in range(1, len(body)):
        deltas = []
        reader = ChatStreamReader(deltas.append)
        for start in range(0, len(body), size):
            reader.feed(body[start : start + size])
        assert outcome_of(reader.joined) == outcome_of(lambda: join_chat_stream(body))
        # No server is known to end lines with a carriage return alone. Its reply is joined at the end.
        assert deltas == ([] if newline == b"\r" else [chunk["choices"][0]["delta"] for chunk in chunks[:2]])


def outcome_of(join):
    try:
        return join()
    except ReplyMalformed as problem:
        return str(problem)


@pytest.mark.parametrize("index", [-1, "0", 7, 2**40, None])
def test_the_index_of_a_call_only_tells_calls_apart(index):
    pieces = [{"id": "c", "function": {"name": "f", "arguments": '{"a"'}}, {"function": {"arguments": ": 1}"}}]
    chunks = [delta(tool_calls=[{"index": index, **piece}]) for piece in pieces]
    items = read_chat_reply(join_chat_stream(stream(*chunks, delta("tool_calls")))).items
    assert [(item["call_id"], item["name"], item["arguments"]) for item in items] == [("c", "f", '{"a": 1}')]


def test_calls_without_an_index_are_told_apart_by_their_ids():
    calls = [{"id": name, "function": {"name": "f", "arguments": "{}"}} for name in "ab"]
    items = read_chat_reply(join_chat_stream(stream(delta(tool_calls=calls), delta("tool_calls")))).items
    assert [item["call_id"] for item in items] == ["a", "b"]


def test_arguments_that_are_an_object_in_a_stream_become_text():
    chunk = delta("tool_calls", tool_calls=[{"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}])
    assert read_chat_reply(join_chat_stream(stream(chunk))).items[0]["arguments"] == '{"a":1}'


@pytest.mark.parametrize("error", [None, "", {}, False])
def test_a_null_error_is_ignored(error):
    chunks = [{**delta(content="4"), "error": error}, delta("stop")]
    assert text_of(read_chat_reply(join_chat_stream(stream(*chunks))).items[0]) == "4"


@pytest.mark.parametrize("choices", [["x"], {"a": 1}, [{"delta": "x"}], [{"delta": {"tool_calls": ["x"]}}], [3]])
def test_chunks_of_another_shape_are_malformed(choices):
    with pytest.raises(ReplyMalformed, match="endpoint's stream"):
        join_chat_stream(stream({"choices": choices}, delta("stop")))


@pytest.mark.parametrize("logprobs", [[1], "x", {"content": "x"}, {"content": [1]}])
def test_odd_tokens_in_a_stream_cost_a_note_and_never_the_reply(logprobs):
    first = {"choices": [{"delta": {"content": "4"}, "token_ids": [7], "logprobs": logprobs}], "prompt_token_ids": [1]}
    got = read_chat_reply(join_chat_stream(stream(first, delta("stop"))), asked_tokens=True)
    assert (text_of(got.items[0]), got.tokens, got.tokens_note) == ("4", None, "malformed_tokens")


@pytest.mark.parametrize(
    "thoughts",
    [
        [{"reasoning_details": [{"type": "reasoning.text", "text": text}]} for text in ("2 + ", "2")],
        [{"reasoning": text, "reasoning_details": [{"text": text}]} for text in ("2 + ", "2")],
        [{"reasoning_content": [{"text": "2 + "}, {"text": "2"}]}],
        [{"provider_specific_fields": {"reasoning": text}} for text in ("2 + ", "2")],
        [
            {"provider_specific_fields": {"reasoning_content": text}, "reasoning_content": text}
            for text in ("2 + ", "2")
        ],
        [{"reasoning_content": None, "provider_specific_fields": {"reasoning_content": [{"text": "2 + 2"}]}}],
    ],
)
def test_a_thought_in_pieces_is_one(thoughts):
    chunks = [*(delta(**thought) for thought in thoughts), delta(content="4"), delta("stop")]
    items = read_chat_reply(join_chat_stream(stream(*chunks))).items
    assert [text_of(item) for item in items] == ["2 + 2", "4"]


def test_fields_of_a_gateway_are_read_in_a_stream():
    def chunk(text, number):
        fields = {"token_ids": [number], "stop_reason": None}
        choice = {"delta": {"content": text}, "provider_specific_fields": fields}
        choice["logprobs"] = {"content": [{"logprob": -0.5}]}
        return {"choices": [choice], "prompt_token_ids": [1]}

    body = stream(chunk("4", 7), chunk("2", 8), delta("stop"))
    got = read_chat_reply(join_chat_stream(body), asked_tokens=True)
    assert (got.tokens_note, got.tokens.fields()["generation_token_ids"]) == ("", [7, 8])
    # The thought also reaches the client of a captured agent.
    thoughts = [delta(provider_specific_fields={"reasoning_content": text}) for text in ("2 + ", "2")]
    parts = []
    ask(stream(*thoughts, delta(content="4"), delta("stop")), content_type="text/event-stream", on_delta=parts.append)
    assert [(each.kind, each.text) for each in parts] == [("reasoning", "2 + "), ("reasoning", "2"), ("text", "4")]


TOO_LONG = {"error": {"message": "This model's maximum context length is 1024 tokens."}}


@pytest.mark.parametrize(
    ("body", "content_type"), [(stream(TOO_LONG), "text/event-stream"), (orjson.dumps(TOO_LONG), "application/json")]
)
def test_a_conversation_that_outgrew_the_model_may_be_told_with_200(body, content_type):
    assert ask(body, content_type=content_type).finish_reason == "context_length"


def test_an_error_that_came_with_200_is_told_in_the_endpoints_words():
    with pytest.raises(PolicyError, match=r"^The endpoint failed to answer: No GPU left\.$"):
        ask(b'{"error": {"message": "No GPU left."}}')


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (stream({"error": {"message": f"bad key Bearer {KEY}"}}), {"content_type": "text/event-stream"}),
        (stream({"error": f"bad key {KEY}"}), {"content_type": "text/event-stream"}),
        (stream({"error": {"detail": f"bad key {KEY}"}}), {"content_type": "text/event-stream"}),
        (orjson.dumps({"output": [], "status": "failed", "error": {"message": KEY}}), {"wire": "responses"}),
        (orjson.dumps({"choices": [{"message": {}, "finish_reason": "error"}], "id": KEY}), {}),
        (orjson.dumps({"detail": KEY}), {"status": 401}),
    ],
)
def test_no_message_quotes_the_key_and_none_is_longer_than_500_characters(body, given):
    observed: list[tuple[Outcome, str]] = []
    with pytest.raises(PolicyError) as caught:
        ask(
            body.replace(b"bad key", b"bad key" + b"." * 900),
            observe=lambda outcome, said="": observed.append((outcome, said)),
            **given,
        )
    said = [str(caught.value), *(text for _, text in observed)]
    assert [text for text in said if KEY in text or len(text) > 500] == []


def test_a_reply_that_repeats_the_key_is_kept_without_it():
    said = {"content": f"Your key is {KEY}.", "reasoning": KEY}
    function = {"name": "f", "arguments": orjson.dumps({"key": KEY}).decode()}
    choice = {"message": {**said, "tool_calls": [{"id": KEY, "function": function}]}, "finish_reason": KEY}
    got = ask(orjson.dumps({"id": KEY, "model": KEY, "choices": [choice]}))
    assert KEY not in str(msgspec.to_builtins(got))
    assert (got.model, text_of(got.items[1])) == ("[API key]", "Your key is [API key].")
    assert got.server_finish_reason == "[API key]"


def test_a_key_that_is_split_over_chunks_is_found():
    body = stream(delta(content=f"It is {KEY[:9]}"), delta(content=KEY[9:]), delta("stop"))
    assert text_of(ask(body, content_type="text/event-stream").items[0]) == "It is [API key]"


def as_text(piece):
    return {"content": piece}


def as_reasoning(piece):
    return {"reasoning_content": piece}


def as_arguments(piece):
    return {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": piece}}]}


def test_a_streamed_call_without_an_id_has_the_id_that_the_agent_gets():
    for own in ({}, {"id": ""}, {"id": None}):
        call, deltas = {"index": 0, **own, "function": {"name": "f", "arguments": "{}"}}, []
        body = stream(delta(content="So."), delta(tool_calls=[call]), delta("stop"))
        reply = ask(body, content_type="text/event-stream", on_delta=deltas.append)
        told = [one.call_id for one in deltas if one.kind == "call"]
        assert told == [reply.items[-1]["call_id"]] and all(told)


def passed_on(pieces, write):
    """The texts that an agent gets of a reply that is streamed in these pieces."""
    deltas = []
    body = stream(*(delta(**write(piece)) for piece in pieces), delta("stop"))
    ask(body, content_type="text/event-stream", on_delta=deltas.append)
    return [each.text for each in deltas if each.kind != "call"]


@pytest.mark.parametrize("write", [as_text, as_reasoning, as_arguments])
@pytest.mark.parametrize("said", [f"It is {KEY}.", KEY, f"{KEY[:9]}{KEY}{KEY[:-1]}", f"no key, but {KEY[:-1]}"])
def test_no_split_of_a_stream_passes_the_key_on(said, write):
    for cut in range(len(said) + 1):
        assert "".join(passed_on([said[:cut], said[cut:]], write)) == said.replace(KEY, "[API key]")


@given(st.lists(st.sampled_from([KEY, KEY[:-1], KEY[:2], KEY[1:], "s", "."]), max_size=5), st.sets(st.integers(0, 99)))
def test_no_splits_of_a_stream_pass_the_key_on(parts, cuts):
    said = "".join(parts)
    ends = [0, *sorted(cut for cut in cuts if cut < len(said)), len(said)]
    pieces = [said[start:end] for start, end in itertools.pairwise(ends)]
    assert "".join(passed_on(pieces, as_text)) == said.replace(KEY, "[API key]")


def test_text_that_cannot_begin_the_key_is_passed_on_at_once():
    assert passed_on(["One ", "two ", "s", "ix."], as_text) == ["One ", "two ", "six."]


def test_arguments_of_parallel_calls_are_passed_on_apart():
    parts = []
    calls = [{"index": at, "id": f"call_{at}", "function": {"name": "f", "arguments": ""}} for at in (0, 1)]
    pieces = [{"index": at, "function": {"arguments": text}} for at, text in ((0, '"sk-te'), (1, 'st"'), (0, '"'))]
    body = stream(*(delta(tool_calls=[each]) for each in (*calls, *pieces)), delta("tool_calls"))
    ask(body, content_type="text/event-stream", on_delta=parts.append)
    arguments = [(each.number, each.text) for each in parts if each.kind == "arguments"]
    assert arguments == [(0, '"'), (0, "sk-te"), (1, 'st"'), (0, '"')]


def test_each_part_of_a_stream_is_passed_on_before_the_next_begins():
    kinds = []
    chunks = [as_reasoning("so s"), as_text("It is sk-"), as_arguments('{"a":"sk-te'), as_arguments('st"}')]
    body = stream(*(delta(**chunk) for chunk in chunks), delta("stop"))
    ask(body, content_type="text/event-stream", on_delta=lambda each: kinds.append((each.kind, each.text)))
    assert kinds == [
        ("reasoning", "so "),
        ("reasoning", "s"),
        ("text", "It is "),
        ("text", "sk-"),
        ("call", "f"),
        ("arguments", '{"a":"'),
        ("arguments", 'sk-test"}'),
    ]


def test_a_key_that_is_escaped_is_found():
    written = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
    body = b'{"output": [{"type": "message", "role": "assistant", "content": "%s"}]}' % written.encode()
    assert ask(body, wire="responses").items[0]["content"] == "[API key]"
