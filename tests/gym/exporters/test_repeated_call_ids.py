"""A reply with two calls of one id: each result reaches its call in every export, import and lane."""

import orjson
import pytest

from apps.dashboard.traces.cards import Trace
from apps.gym.exporters.genai_tools import find_tool_runs
from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.rollout_files.response_turns import read_turns
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.traces.events import EnvironmentTurn, ModelCall, ToolResult, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item
from apps.gym.traces.messages import completion_messages
from tests.dashboard.test_lanes import shown
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked
from tests.gym.captured_calls import said as told
from tests.gym.exporters.attempts import attempt
from tests.gym.traces import call, said, trace, turn

CALLS = [call('{"n": 1}', "call_1"), call('{"n": 2}', "call_1", "search")]
RIGHT = [("get_weather", "alpha"), ("search", "beta")]


def output(text: str, call_id: str = "call_1") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def swapped(call_id: str = "call_1") -> list[TraceUnion]:
    """The result of the second call comes first; its tool tells whose it is."""
    first, second = ({**one, "call_id": call_id} for one in CALLS)
    late = [
        ToolResult(call_id=call_id, name="search", output="beta"),
        ToolResult(call_id=call_id, name="get_weather", output="alpha"),
    ]
    return trace(turn(first, second), *late, turn(said("done")))


def rows_of(slug: str, events: list[TraceUnion], **options: str) -> list[dict]:
    format = FORMATS[slug]
    made = format.rows(attempt(events, columns={"rollout_id": 7}), resolve_options(format, options))
    return [orjson.loads(orjson.dumps(one)) for one in made]


def chat_pairs(messages: list[dict]) -> list[tuple[str, str]]:
    """Return the tool of each call with the text of its result, found by the id alone."""
    calls = [one for message in messages for one in message.get("tool_calls") or ()]
    results = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    assert len(results) == len(calls) == 2 and all(results)
    return [(one["function"]["name"], results[one["id"]]) for one in calls]


def item_pairs(items: list[Item]) -> list[tuple[str, str]]:
    results = {one["call_id"]: one["output"] for one in items if one["type"] == "function_call_output"}
    assert len(results) == 2 and all(results)
    return [(one["name"], results[one["call_id"]]) for one in items if one["type"] == "function_call"]


def test_results_without_a_tool_belong_to_their_calls_in_order() -> None:
    events = trace(turn(*CALLS), EnvironmentTurn(items=[output("alpha"), output("beta")]), turn(said("done")))
    assert chat_pairs(completion_messages(events)) == RIGHT


@pytest.mark.parametrize("given", ["call_1", ""])
@pytest.mark.parametrize("slug", ["trl_sft", "openai_sft", "verl_sft", "axolotl_sft", "openrlhf_sft", "nemo_rl_sft"])
def test_conversations_have_unique_ids(slug: str, given: str) -> None:
    (row,) = rows_of(slug, swapped(given))
    messages = row.get("messages") or row.get("input") or orjson.loads(row["conversation"])
    assert chat_pairs(messages if isinstance(messages, list) else orjson.loads(messages)) == RIGHT


@pytest.mark.parametrize("given", ["call_1", ""])
def test_atif_and_nemo_gym_rows_pair_by_unique_ids_and_are_read_back(given: str) -> None:
    (document,) = rows_of("atif", swapped(given))
    step = next(one for one in document["steps"] if "tool_calls" in one)
    results = {one["source_call_id"]: one["content"] for one in step["observation"]["results"]}
    assert [(one["function_name"], results[one["tool_call_id"]]) for one in step["tool_calls"]] == RIGHT
    (row,) = rows_of("nemo_gym_rollouts", swapped(given))
    assert item_pairs(row["response"]["output"]) == RIGHT
    for one in (document, row):
        read = read_line(orjson.dumps(one)).attempt({}, environment="weather")
        assert chat_pairs(completion_messages(read.events)) == RIGHT


def test_nemo_gym_responses_name_results_in_the_order_of_the_calls() -> None:
    response = {"output": [*CALLS, output("alpha"), output("beta"), said("done")]}
    results = [one for one in read_turns(response, {}, seen=1) if isinstance(one, ToolResult)]
    assert [(one.name, one.output) for one in results] == RIGHT


def test_atif_trajectories_with_repeated_ids_are_read_in_order() -> None:
    (document,) = rows_of("atif", swapped())
    step = next(one for one in document["steps"] if "tool_calls" in one)
    for one in step["tool_calls"]:
        one["tool_call_id"] = "x"
    step["observation"]["results"] = [{"source_call_id": "x", "content": text} for text in ("alpha", "beta")]
    read = read_line(orjson.dumps(document)).attempt({}, environment="weather")
    assert [(one.name, one.output) for one in read.events if isinstance(one, ToolResult)] == RIGHT


@pytest.mark.parametrize("given", ["call_1", ""])
def test_spans_have_unique_ids(given: str) -> None:
    (row,) = rows_of("otel_genai", swapped(given))
    spans = row["resourceSpans"][0]["scopeSpans"][0]["spans"]
    told = [{one["key"]: one["value"].get("stringValue") for one in span["attributes"]} for span in spans]
    tools = {one["gen_ai.tool.call.id"]: one for one in told if "gen_ai.tool.call.id" in one}
    assert len(tools) == 2
    arguments = {one["gen_ai.tool.name"]: one["gen_ai.tool.call.arguments"] for one in tools.values()}
    assert [orjson.loads(arguments[name]) for name, _ in RIGHT] == [{"n": 1}, {"n": 2}]


def captured() -> list[TraceUnion]:
    recorder = Recorder()
    calls = [asked("call_1", '{"n": 1}'), asked("call_1", '{"n": 2}', "search")]
    start = [SYSTEM, {"type": "message", "role": "user", "content": "Go."}]
    recorder.call(start, calls)
    recorder.call([*start, *calls, answered("call_1", "alpha"), answered("call_1", "beta")], [told("done")])
    return recorder.events


def test_captured_calls_get_the_results_of_a_request_in_order() -> None:
    page: Trace = shown(captured())
    card = next(one for one in page.cards if any(block.kind == "call" for block in one.blocks))
    results = [block.result.body.text for block in card.blocks if block.kind == "call" and block.result]
    assert results == ["alpha", "beta"]
    graph = TraceGraph(captured())
    assert [(run.tool, run.output) for run in find_tool_runs(graph)] == [("run", "alpha"), ("search", "beta")]
    assert chat_pairs(completion_messages(graph.main)) == [("run", "alpha"), ("search", "beta")]


def test_recorded_results_of_a_captured_call_are_paired_by_tool() -> None:
    events = captured()
    place = next(at for at, event in enumerate(events) if isinstance(event, ModelCall)) + 1
    late = [
        ToolResult(call_id="call_1", name=name, output=text) for name, text in (("search", "beta"), ("run", "alpha"))
    ]
    for requested in (True, False):
        kept = events[place:] if requested else []
        page = shown([*events[:place], *late, *kept])
        card = next(one for one in page.cards if any(block.kind == "call" for block in one.blocks))
        found = [(block.result.title, block.result.body.text) for block in card.blocks if block.kind == "call"]
        assert found == [("run", "alpha"), ("search", "beta")]
