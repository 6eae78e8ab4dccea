"""Results belong to their calls, in whatever order they arrived and whatever ids the model gave."""

import msgspec
import pytest

from apps.dashboard.traces.call_outputs import Pairing, Read
from apps.gym.exporters.genai_tools import find_tool_runs
from apps.gym.exporters.llama_factory import sft_rows
from apps.gym.exporters.openai import FORMATS as OPENAI
from apps.gym.exporters.protocol import Options
from apps.gym.traces.courses import course_of, find_divergence
from apps.gym.traces.events import EnvironmentTurn, ToolResult, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message, unique_ids
from apps.gym.traces.messages import completion_messages, prompt_messages
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt
from tests.gym.traces import call, said, trace, turn

OPTIONS = Options(reasoning="inline", tools="text")


def result(call_id: str, output: str, name: str = "get_weather") -> ToolResult:
    return ToolResult(call_id=call_id, name=name, output=output)


def two(*answers: TraceUnion, ids: tuple[str, str] = ("a", "b"), names: tuple[str, str] | None = None):
    first, second = names or ("get_weather", "get_weather")
    calls = turn(call('{"n": 1}', ids[0], first), call('{"n": 2}', ids[1], second))
    return trace(calls, *answers, turn(said("done")))


SWAPPED = two(result("b", "beta"), result("a", "alpha"))
AS_ITEMS = [
    {"type": "function_call_output", "call_id": "b", "output": "beta"},
    {"type": "function_call_output", "call_id": "a", "output": "alpha"},
]


@pytest.mark.parametrize("events", [SWAPPED, two(EnvironmentTurn(items=AS_ITEMS))])
def test_results_are_written_in_the_order_of_their_calls(events: list[TraceUnion]) -> None:
    (row,) = sft_rows(attempt(events), OPTIONS)
    observation = row["conversations"][2]
    assert observation["from"] == "observation"
    assert observation["value"].index("alpha") < observation["value"].index("beta")
    tools = [one for one in completion_messages(events) if one["role"] == "tool"]
    assert [(one["tool_call_id"], one["content"]) for one in tools] == [("a", "alpha"), ("b", "beta")]


def test_results_of_a_prompt_are_written_in_the_order_of_their_calls() -> None:
    start = [message("user", "Go."), call('{"n": 1}', "a"), call('{"n": 2}', "b"), *AS_ITEMS, message("user", "On.")]
    told = prompt_messages(trace(turn(said("done")), prompt=start))
    assert [one["content"] for one in told if one["role"] == "tool"] == ["alpha", "beta"]


def test_pairs_compare_results_by_call() -> None:
    ordered = two(result("a", "alpha"), result("b", "beta"))
    ordered[-2] = turn(said("else"))
    found = find_divergence(course_of(SWAPPED), course_of(ordered))
    assert (found.place, found.turn) == (3, 1)


@pytest.mark.parametrize("given", ["call_1", ""])
def test_repeated_ids_are_paired_by_tool_and_written_as_unique_ids(given: str) -> None:
    events = two(
        result(given, "beta", "search"), result(given, "alpha"), ids=(given, given), names=("get_weather", "search")
    )
    assistant, *tools, _ = completion_messages(events)
    ids = [one["id"] for one in assistant["tool_calls"]]
    assert len(set(ids)) == 2 and all(ids)
    assert [(one["tool_call_id"], one["name"], one["content"]) for one in tools] == [
        (ids[0], "get_weather", "alpha"),
        (ids[1], "search", "beta"),
    ]
    runs = find_tool_runs(TraceGraph(events))
    assert [(run.tool, run.arguments, run.output) for run in runs] == [
        ("search", '{"n": 2}', "beta"),
        ("get_weather", '{"n": 1}', "alpha"),
    ]
    pairing = Pairing([Read(seq, "", msgspec.json.encode(event).decode(), event) for seq, event in enumerate(events)])
    shown = [pairing.result_of((2, place)) for place in range(2)]
    assert [one.body.text for one in shown if one] == ["alpha", "beta"]


def test_equal_calls_with_one_id_are_paired_by_position() -> None:
    _, *tools, _ = completion_messages(two(result("x", "alpha"), result("x", "beta"), ids=("x", "x")))
    assert [(one["tool_call_id"], one["content"]) for one in tools] == [("x", "alpha"), ("x_2", "beta")]


def test_a_result_of_the_second_call_alone_is_dropped_where_the_row_has_no_ids() -> None:
    events = two(result("b", "beta"))
    with pytest.raises(Dropped) as dropped:
        list(sft_rows(attempt(events), OPTIONS))
    assert dropped.value.reason == "results_not_in_call_order"
    chat = next(one for one in OPENAI if one.slug == "openai_sft")
    (row,) = chat.rows(attempt(events), Options(reasoning="dropped", arguments="text", tools="column"))
    assert [one["tool_call_id"] for one in row["messages"] if one["role"] == "tool"] == ["b"]


def test_unique_ids_leave_given_ids_alone() -> None:
    assert unique_ids(["a", "b"]) == ["a", "b"]
    assert unique_ids(["a", "a", "a_2", ""]) == ["a", "a_3", "a_2", "call_4"]
