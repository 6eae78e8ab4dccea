"""Traces of GenAI, OpenInference and older spans as conversations, and our own export read back."""

import orjson
import pytest

from apps.gym.rollout_files.shapes.genai_spans import why_refused
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import item_type, text_of
from tests.gym.exporters.attempts import attempt, paris
from tests.gym.exporters.test_otel_genai import row_of, subagent_events, weather

TRACE = "ab" * 16


def attributes(**given):
    return [{"key": name, "value": {"stringValue": value}} for name, value in given.items()]


def span(number, told, *, parent="", name="chat m", **fields):
    times = {"startTimeUnixNano": str(number * 10**9), "endTimeUnixNano": str(number * 10**9 + 5 * 10**8)}
    ids = {"traceId": TRACE, "spanId": f"{number:016x}", "parentSpanId": parent}
    return {**ids, "name": name, **times, "attributes": attributes(**told), **fields}


def request_of(*spans):
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}


def genai(sent, said, **told):
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": orjson.dumps(sent).decode(),
        "gen_ai.output.messages": orjson.dumps(said).decode(),
        **told,
    }


def user(text):
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def assistant(text):
    return {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}


def read(*spans):
    given = read_line(orjson.dumps(request_of(*spans)))
    return given, given.attempt({}, environment="exact_match").events


def plain(items):
    """The items without their ids, with arguments as data."""
    kept = []
    for item in items:
        if item_type(item) == "function_call":
            kept.append(("call", item["call_id"], item["name"], orjson.loads(item["arguments"])))
        elif item_type(item) == "function_call_output":
            kept.append(("output", item["call_id"], item["output"]))
        else:
            kept.append((item_type(item), item.get("role"), text_of(item)))
    return kept


@pytest.mark.parametrize("events", [paris, weather, subagent_events], ids=["paris", "weather", "subagent"])
def test_our_own_export_read_back_is_the_same_conversation(events):
    before = events()
    given = read_line(orjson.dumps(row_of(before)))
    stored = given.attempt({}, environment="exact_match")
    ours, theirs = TraceGraph(before), TraceGraph(stored.events)
    assert len(theirs.calls) == len(ours.calls)
    for number in ours.calls:
        assert plain(theirs.request(number)) == plain(ours.request(number))
        assert plain(theirs.calls[number].items) == plain(ours.calls[number].items)
        assert theirs.parent(number) == ours.parent(number)
    assert stored.reward == attempt(before).reward
    assert stored.stop_reason == attempt(before).stop_reason


def test_an_export_with_new_messages_is_refused_by_name():
    with pytest.raises(RowRefused, match="messages “all”"):
        read_line(orjson.dumps(row_of(weather(), {"messages": "new"})))


def test_older_spans_have_their_messages_as_attributes():
    told = {
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "2 + 2?",
        "gen_ai.completion.0.content": "4",
    }
    given, events = read(span(2, told))
    assert plain(given.task["responses_create_params"]["input"]) == [("message", "user", "2 + 2?")]
    [call] = [event for event in events if isinstance(event, ModelCall)]
    assert plain(call.items) == [("message", "assistant", "4")]


def test_two_instrumentations_of_one_call_count_once_and_a_failed_call_is_left_out():
    told = genai([user("2 + 2?")], [assistant("4")])
    failed = span(4, {"gen_ai.operation.name": "chat"}, parent=f"{9:016x}", status={"code": 2})
    assert why_refused(failed) == ""
    given, events = read(span(2, told), span(3, told, parent=f"{2:016x}"), failed)
    assert sum(isinstance(event, ModelCall) for event in events) == 1
    assert given.row["session"]["left_out"] == {"failed call": 1, "call around another call": 1}


def test_a_part_of_an_unknown_type_is_refused_by_name():
    message = {"role": "user", "parts": [{"type": "server_tool_call", "id": "1"}]}
    assert "server_tool_call" in why_refused(span(2, genai([message], [assistant("4")])))


def test_a_file_with_two_traces_on_one_line_is_refused():
    other = {**span(3, genai([user("?")], [assistant("4")])), "traceId": "cd" * 16}
    with pytest.raises(RowRefused, match="2 traces"):
        read(span(2, genai([user("?")], [assistant("4")])), other)
