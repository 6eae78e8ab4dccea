"""Requests of the Messages wire, in both directions."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.errors import PolicyError
from apps.gym.wires.dialect import Dialect, SamplingRefused
from apps.gym.wires.messages_content import read_arguments, write_arguments
from apps.gym.wires.messages_request import (
    BadMessages,
    messages_request,
    read_messages_request,
    write_messages,
)
from apps.gym.wires.protocol import Ask

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.text("abcdefgh_", min_size=1, max_size=8)
leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, width=32), texts)
values = st.recursive(
    leaves.filter(lambda one: one not in (float("inf"), float("-inf"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
inputs = st.dictionaries(texts, values, max_size=3)
text_block = some_text.map(lambda text: {"type": "text", "text": text})
sources = st.sampled_from(
    [
        {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        {"type": "url", "url": "https://a.example/cat.png"},
        {"type": "file", "file_id": "file_1"},
    ]
)
image = sources.map(lambda source: {"type": "image", "source": source})
document = st.builds(
    lambda source, title: {"type": "document", "source": source, **title},
    sources,
    st.sampled_from([{}, {"title": "a.pdf"}]),
)
media = st.lists(st.one_of(text_block, image), min_size=1, max_size=3)


def as_written(blocks):
    """A single text block as the string that means the same."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


result = st.builds(
    lambda call_id, content, failed: {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
        **({"is_error": True} if failed else {}),
    },
    names,
    st.one_of(texts, media.map(as_written)),
    st.booleans(),
)
user_turn = st.builds(
    lambda results, blocks: [*results, *blocks],
    st.lists(result, max_size=3),
    st.lists(st.one_of(text_block, image, document), max_size=3),
).filter(bool)
model_turn = st.lists(
    st.one_of(
        text_block,
        st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, texts, texts),
        some_text.map(lambda data: {"type": "redacted_thinking", "data": data}),
        st.builds(
            lambda call_id, name, given: {"type": "tool_use", "id": call_id, "name": name, "input": given},
            names,
            names,
            inputs,
        ),
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def bodies(draw):
    """Requests in which roles alternate, with a message of the system between turns now and then."""
    body = {"model": "m", "max_tokens": draw(st.integers(1, 99)), "messages": []}
    if system := draw(st.lists(text_block, max_size=3)):
        body["system"] = as_written(system)
    for _ in range(draw(st.integers(1, 4))):
        body["messages"].append({"role": "user", "content": as_written(draw(user_turn))})
        if draw(st.booleans()):
            body["messages"].append({"role": "system", "content": draw(some_text)})
        turn = draw(model_turn)
        for place, block in enumerate(turn):
            if block["type"] == "tool_use":
                block["id"] += f"_{len(body['messages'])}_{place}"  # The API refuses repeated ids.
        body["messages"].append({"role": "assistant", "content": as_written(turn)})
    tools = st.builds(
        lambda name, schema, more: {"name": name, "input_schema": schema, **more},
        names,
        st.sampled_from([{"type": "object"}, {"type": "object", "properties": {"a": {"type": "string"}}}]),
        st.sampled_from([{}, {"description": "Does."}, {"strict": True}]),
    )
    if given := draw(st.lists(tools, max_size=2)):
        body["tools"] = given
        body["tool_choice"] = draw(
            st.sampled_from(
                [
                    {"type": "auto"},
                    {"type": "none"},
                    {"type": "any", "disable_parallel_tool_use": True},
                    {"type": "tool", "name": "a"},
                ]
            )
        )
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["END"]}
    return body | {name: options[name] for name in draw(st.lists(st.sampled_from([*options]), unique=True))}


@settings(max_examples=200, deadline=None)
@given(bodies())
def test_a_request_survives_the_way_to_items_and_back(body):
    before = copy.deepcopy(body)
    read = read_messages_request(body)
    assert (read.dropped, body) == ([], before)
    back = messages_request(Ask(items=read.items, tools=read.tools, sampling=read.sampling), model_name=read.model)
    assert back == body
    assert read_messages_request(back) == read


@given(st.one_of(inputs, st.just({})))
def test_arguments_survive_the_way_to_an_input_and_back(value):
    written = write_arguments(value)
    assert read_arguments(written) == json.loads(written) == value
    assert write_arguments(read_arguments(written)) == written


anything = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def odd(**fields):
    """An object with some of these fields, each as it should be or as anything else."""
    return st.fixed_dictionaries({}, optional={name: value | anything for name, value in fields.items()}) | anything


odd_block = odd(
    type=st.sampled_from(["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"]),
    text=texts,
    source=odd(type=st.sampled_from(["base64", "url", "file", "text"]), data=texts, url=texts, file_id=texts),
    content=st.lists(text_block, max_size=2),
    input=inputs,
)
odd_message = odd(role=st.sampled_from(["user", "assistant", "system"]), content=st.lists(odd_block, max_size=3))
odd_body = odd(
    model=texts,
    system=st.lists(odd_block, max_size=2),
    messages=st.lists(odd_message, min_size=1, max_size=3),
    tools=st.lists(odd(type=texts, name=texts, input_schema=inputs), max_size=2),
    tool_choice=odd(type=st.sampled_from(["auto", "any", "tool", "none"]), name=texts),
    output_config=odd(format=odd(type=st.just("json_schema"), schema=inputs)),
    thinking=inputs,
    max_tokens=st.integers(),
    stream=st.booleans(),
).filter(lambda body: isinstance(body, dict))


@settings(max_examples=200, deadline=None)
@given(odd_body)
def test_any_body_is_a_request_or_refused(body):
    try:
        read = read_messages_request(body)
    except BadMessages:
        return
    try:
        messages_request(Ask(items=read.items, tools=read.tools, sampling=read.sampling), model_name="m")
    except PolicyError as error:
        assert "Messages wire" in str(error)


odd_part = odd(
    type=st.sampled_from(["input_text", "output_text", "refusal", "input_image", "input_file"]),
    text=texts,
    image_url=st.sampled_from(["data:image/png;base64,AAAA", "https://a.example/a.png"]),
    file_data=texts,
    file_id=texts,
)
odd_item = odd(
    type=st.sampled_from(["message", "reasoning", "function_call", "function_call_output"]),
    role=st.sampled_from(["user", "assistant", "system", "developer"]),
    content=texts | st.lists(odd_part, max_size=2),
    arguments=texts,
    output=texts | st.lists(odd_part, max_size=2),
    call_id=texts,
    signature=texts,
).filter(lambda item: isinstance(item, dict))


@settings(max_examples=200, deadline=None)
@given(st.lists(odd_item, max_size=4))
def test_any_items_are_messages_or_an_error(items):
    try:
        write_messages(items)
    except PolicyError as error:
        assert "Messages wire" in str(error)


@pytest.mark.parametrize(
    "text", ["not JSON", "[1]", '{"a": ', '{"a": 1e400}', '{"a": NaN}', "[" * 100_000, '"x"', " {"]
)
def test_non_object_arguments_are_sent_back_unchanged(text):
    assert write_arguments(read_arguments(text)) == text


def test_cache_marks_do_not_make_another_conversation():
    marked = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    as_blocks = {"messages": [{"role": "user", "content": marked}], "system": marked, "cache_control": {}}
    as_text = {"messages": [{"role": "user", "content": "Hi"}], "system": "Hi"}
    assert read_messages_request(as_blocks) == read_messages_request(as_text)


def test_everything_that_is_left_out_is_named():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "search_result"}, {"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "tool_reference"}]}]},
        ],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "a", "input_schema": {}}],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "context_management": {"edits": []},
        "metadata": {"user_id": "u"},
        "mcp_servers": None,
        "stream": True,
    }
    read = read_messages_request(body)
    assert read.dropped == [
        "messages.0.content (search_result)",
        "messages.1.content (server_tool_use)",
        "messages.2.content (tool_reference)",
        "tools.0 (web_search_20250305)",
        "output_config.effort",
        "context_management",
        "metadata",
    ]
    assert (read.thinking, read.stream, [tool["name"] for tool in read.tools]) == ({"type": "adaptive"}, True, ["a"])
    form = {"type": "json_schema", "name": "output", "schema": {"type": "object"}}
    assert read.sampling == {"text": {"format": form}}


NAMELESS = {"type": "tool_use", "id": "c1", "input": {}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "assistant", "content": [7]}]}, "messages.0.content"),
        ({"messages": [{"role": "assistant", "content": [NAMELESS]}]}, "messages.0.content.0.tool_use.name"),
        ({"messages": [{"role": "user", "content": "Hi"}], "tools": [{}]}, "tools.0.name"),
        ({"messages": [{"role": "user", "content": "Hi"}], "system": 7}, "system"),
        ({"messages": [{"role": "user", "content": "Hi"}], "model": 7}, "model"),
    ],
)
def test_a_body_that_is_no_request_is_refused_by_field(body, field):
    with pytest.raises(BadMessages, match=f"^{field}: "):
        read_messages_request(body)


def request(items, dialect=None, tools=(), **sampling):
    ask = Ask(items=items, tools=list(tools), sampling=sampling)
    return messages_request(ask, model_name="m", dialect=dialect or Dialect())


def test_sampling_of_the_responses_api_is_said_in_the_words_of_messages():
    tool = {"type": "function", "name": "a", "parameters": {"type": "object"}, "strict": None, "description": None}
    body = request(
        [{"role": "user", "content": "Hi"}],
        tools=[tool],
        instructions="Be brief.",
        seed=3,
        stop="END",
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=None,
        thinking={"type": "adaptive"},
        reasoning={"effort": "high"},
        text={"format": {"type": "json_schema", "name": "v", "schema": {"type": "object"}}},
        metadata={"extra_body": '{"service_tier": "auto", "seed": 4}'},
    )
    assert body == {
        "model": "m",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "a", "input_schema": {"type": "object"}}],
        "max_tokens": 8192,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["END"],
        "thinking": {"type": "adaptive"},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "high"},
        "service_tier": "auto",
    }


@pytest.mark.parametrize("key", ["messages", "model", "system"])
def test_sampling_cannot_set_what_the_rollout_sets(key):
    with pytest.raises(SamplingRefused, match=key):
        request([{"role": "user", "content": "Hi"}], **{key: "x"})


def test_an_endpoint_gets_extra_fields_but_no_choice_of_a_tool_that_is_not_there():
    body = request([{"role": "user", "content": "Hi"}], Dialect(extra_body={"stream": True}), tool_choice="required")
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8192, "stream": True}


THOUGHT = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}]}


@pytest.mark.parametrize(
    ("thought", "thinking", "blocks"),
    [
        (THOUGHT, True, []),  # made by another wire: endpoints reject it
        ({**THOUGHT, "signature": "c2ln"}, True, [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}]),
        ({**THOUGHT, "signature": "c2ln"}, False, []),
    ],
)
def test_only_signed_reasoning_is_sent_back(thought, thinking, blocks):
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    _, [message] = write_messages([thought, said], thinking=thinking)
    assert message["content"] == ([*blocks, {"type": "text", "text": "4"}] if blocks else "4")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call"},
        {"role": "user", "content": [{"type": "input_audio"}]},
        {"role": "user", "content": [{"type": "input_image"}]},
    ],
)
def test_what_messages_cannot_carry_is_an_error(item):
    with pytest.raises(PolicyError, match="Messages wire"):
        request([item])


def test_a_tools_output_that_is_no_text_is_written_as_json():
    _, [message] = write_messages([{"type": "function_call_output", "call_id": "c", "output": {"a": 1}}])
    assert message["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": '{"a":1}'}]
