"""The Responses wire: items pass through whole, and every way to fail has a name."""

import orjson
import pytest

from apps.gym.wires.chat_reply import ReplyMalformed
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import ReplyFailed, read_responses_reply, responses_request

CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "async": None, "new": [1]}
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4", "annotations": []}]}


def envelope(output, **fields):
    return orjson.dumps({"id": "r1", "model": "m", "status": "completed", "error": None, "output": output, **fields})


def test_a_request_carries_items_tools_and_what_sampling_says():
    tool = {"type": "function", "name": "f", "parameters": {}}
    items = [{"role": "user", "content": "Hi", "unknown": 1}]
    sampling = {"temperature": 0.5, "top_p": None, "tool_choice": "auto", "max_output_tokens": 9, "seed": 3}
    assert responses_request(Ask(items=items, tools=[tool], sampling=sampling), model_name="m") == {
        "model": "m",
        "input": items,
        "stream": False,
        "tools": [tool],
        "temperature": 0.5,
        "tool_choice": "auto",
        "max_output_tokens": 9,
        "seed": 3,
    }


def test_structured_output_tool_choice_and_parallel_calls_are_sent_unchanged():
    said = {
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}},
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    tool = {"type": "function", "name": "f", "parameters": {}}
    body = responses_request(Ask(items=[], tools=[tool], sampling={**said, "stream": True}), model_name="m")
    assert body == {"model": "m", "input": [], "tools": [tool], "stream": False, **said}


def test_reasoning_goes_back_as_it_came_encrypted_or_not_unless_it_is_to_be_dropped():
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA", "status": None}
    turn = read_responses_reply(envelope([thought, CALL])).items
    assert turn == [thought, CALL]
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    ask = Ask(items=[{"role": "user", "content": "Hi"}, *turn, output])
    assert responses_request(ask, model_name="m")["input"] == ask.items
    dropped = responses_request(ask, model_name="m", dialect=Dialect(reasoning="dropped"))
    assert dropped["input"] == [ask.items[0], CALL, output]


def test_what_the_endpoint_would_refuse_is_left_out():
    sampling = {"seed": 3, "tool_choice": "auto", "parallel_tool_calls": True}
    ask = Ask(items=[], sampling=sampling)
    assert responses_request(ask, model_name="m", dialect=Dialect(takes_seed=False)) == {
        "model": "m",
        "input": [],
        "stream": False,
    }


def test_items_keep_every_field():
    got = read_responses_reply(envelope([CALL]))
    assert got.items == [CALL]
    assert (got.finish_reason, got.model, got.response_id) == ("tool_calls", "m", "r1")


def test_an_item_without_a_type_gets_one():
    plain = {"role": "assistant", "content": "4"}
    assert read_responses_reply(envelope([plain])).items == [{"type": "message", **plain}]


@pytest.mark.parametrize(
    ("details", "wanted"),
    [
        (None, "stop"),
        ({"reason": "max_output_tokens"}, "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter"),
    ],
)
def test_incomplete_details_are_the_finish_reason(details, wanted):
    assert read_responses_reply(envelope([TEXT], incomplete_details=details)).finish_reason == wanted


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ""),
        ({"status": "incomplete", "incomplete_details": None}, ""),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, ""),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}}, "max_tool_calls"),
        ({"status": "done"}, "done"),
    ],
)
def test_a_reason_that_the_wire_does_not_have_is_told_in_the_servers_word(fields, told):
    assert read_responses_reply(envelope([TEXT], **fields)).server_finish_reason == told


def test_usage_is_read_with_and_without_details():
    details = {"cached_tokens": 2, "cache_write_tokens": 1}
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": details}
    assert read_responses_reply(envelope([], usage=usage)).usage == {
        "input_tokens": 5,
        "output_tokens": 2,
        "reasoning_tokens": 0,
        **details,
    }
    assert read_responses_reply(envelope([])).usage == {}


@pytest.mark.parametrize(
    ("body", "code", "retryable"),
    [
        (envelope([], status="failed", error={"code": "server_error", "message": "Oops."}), "server_error", True),
        (envelope([], error={"code": "invalid_prompt", "message": "Oops."}), "invalid_prompt", False),
        (b'{"error": {"message": "Oops.", "code": 500}}', "500", False),
    ],
)
def test_an_error_object_is_a_failure_with_its_message(body, code, retryable):
    with pytest.raises(ReplyFailed, match=r"Oops\.") as caught:
        read_responses_reply(body)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"output": 3}', b'{"output": ["x"]}', b"\xff"])
def test_an_invalid_responses_object_is_malformed(body):
    with pytest.raises(ReplyMalformed):
        read_responses_reply(body)


def test_a_response_that_is_still_running_is_malformed():
    with pytest.raises(ReplyMalformed, match="in_progress"):
        read_responses_reply(envelope([], status="in_progress"))


def test_an_incomplete_response_without_details_is_a_cut_one():
    assert read_responses_reply(envelope([CALL], status="incomplete")).finish_reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"arguments": {"a": 1}}, {"call_id": "fc", "name": "", "arguments": '{"a":1}'}),
        ({"id": 3, "name": "f"}, {"call_id": "call_r1_0", "name": "f", "arguments": "{}"}),
        ({"call_id": "c", "name": "f", "arguments": "{", "status": "done"}, {"arguments": "{"}),
    ],
)
def test_a_call_gets_what_it_lacks(given, wanted):
    got = read_responses_reply(envelope([{"type": "function_call", "id": "fc", **given}])).items[0]
    assert {key: got[key] for key in wanted} == wanted
    assert "status" not in got


def test_calls_of_responses_without_any_id_are_told_apart():
    unnamed = orjson.dumps({"output": [{"name": "f", "arguments": "{}"}]})
    first, second = (read_responses_reply(unnamed).items[0]["call_id"] for _ in range(2))
    assert first != second


def test_an_item_without_any_type_is_malformed():
    with pytest.raises(ReplyMalformed, match="no type"):
        read_responses_reply(envelope([{"type": 5}]))


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"input_tokens": -3_000_000, "output_tokens": 1e30}, {}),
        ({"input_tokens": True, "output_tokens": 2.5}, {}),
        ({"input_tokens": "12", "output_tokens": 3.0}, {"input_tokens": 12, "output_tokens": 3}),
        ({"output_tokens": 3}, {"output_tokens": 3}),
        ([1], {}),
    ],
)
def test_a_usage_that_cannot_be_is_not_believed(usage, wanted):
    got = read_responses_reply(envelope([], usage=usage)).usage
    assert {key: got[key] for key in got if key in ("input_tokens", "output_tokens")} == wanted


def test_a_part_of_the_usage_is_never_more_than_its_whole():
    usage = {
        "input_tokens": 5,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 900},
        "output_tokens_details": {"reasoning_tokens": -4},
    }
    assert read_responses_reply(envelope([], usage=usage)).usage == {
        "input_tokens": 5,
        "output_tokens": 2,
        "reasoning_tokens": 0,
        "cached_tokens": 5,
    }
