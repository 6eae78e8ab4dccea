"""ATIF trajectories of lines and graphs, and back."""

import orjson
import pytest

from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.traces.events import ModelCall, SessionOpened, ToolResult
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message, text_of
from apps.gym.traces.messages import completion_messages
from apps.gym.trainability import Dropped
from tests.gym.exporters.atif_schema import check_trajectory
from tests.gym.exporters.attempts import attempt, paris
from tests.gym.traces import call, said, trace, turn, with_tokens


def rows_of(events, **given):
    format = FORMATS["atif"]
    made = attempt(events, columns={"rollout_id": 7}, components={"right": 1.0})
    return [orjson.loads(orjson.dumps(row)) for row in format.rows(made, resolve_options(format, given))]


def captured(number, items_in, *items, **fields):
    return ModelCall(seen=len(items_in), call=number, items_in=items_in, items=list(items), **fields)


def graph_events():
    """A call that starts a subagent, its answer, and a compaction."""
    result = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    summary = [message("user", "Summary.")]
    return [
        SessionOpened(environment="any"),
        captured(1, [message("user", "Count.")], call(), lineage=1, root_reason="first"),
        captured(2, [message("user", "Sub.")], said("7"), lineage=2, root_reason="subagent", spawned_by=1),
        captured(3, [result], said("It is 7."), parent=1, kept=2, lineage=1),
        captured(4, summary, said("Done."), lineage=1, root_reason="compaction"),
    ]


def test_a_line_is_one_trajectory_with_its_results_and_tokens():
    [row] = rows_of(with_tokens(paris(), ([1, 2, 3], [4, 5]), ([1, 2, 3, 4, 5, 6], [7])))
    check_trajectory(row)
    assert [step["source"] for step in row["steps"]] == ["system", "user", "agent", "agent"]
    first, second = row["steps"][2:]
    assert first["reasoning_content"] == "I should look up the weather."
    assert first["observation"]["results"] == [{"source_call_id": "call_1", "content": '{"temp": 22, "sky": "sunny"}'}]
    assert (first["metrics"]["prompt_token_ids"], first["metrics"]["completion_token_ids"]) == ([1, 2, 3], [4, 5])
    assert second["message"] == "It is 22 °C and sunny in Paris."
    assert row["extra"]["gymweb"]["reward"] == 1.0


def test_a_trajectory_is_read_as_the_same_conversation():
    events = paris()
    [row] = rows_of(events)
    stored = read_line(orjson.dumps(row))
    read = stored.attempt({}, environment="weather")
    assert completion_messages(read.events) == completion_messages(events)
    assert (read.reward, read.components, read.stop_reason) == (1.0, {"right": 1.0}, "answered")


def test_the_main_branch_is_the_path_to_the_answer():
    [row] = rows_of(graph_events())
    assert [step["message"] for step in row["steps"]] == ["Summary.", "Done."]


def test_all_branches_embed_subagents_and_name_the_continuation():
    main, earlier = rows_of(graph_events(), branches="all")
    for row in (main, earlier):
        check_trajectory(row)
    assert earlier["continued_trajectory_ref"] == main["trajectory_id"]
    [subagent] = [*main.get("subagent_trajectories", ()), *earlier.get("subagent_trajectories", ())]
    assert subagent["steps"][-1]["message"] == "7"
    refs = [result.get("subagent_trajectory_ref") for result in earlier["steps"][1]["observation"]["results"]]
    assert refs == [None, [{"trajectory_id": subagent["trajectory_id"]}]]


def test_a_turn_of_two_trajectories_is_copied_context_in_the_second():
    events = [
        captured(1, [message("user", "One.")], said("first"), lineage=1, root_reason="first"),
        captured(2, [message("user", "Two.")], said("left"), parent=1, kept=2, lineage=1),
        captured(3, [message("user", "Three.")], said("right"), parent=1, kept=2, lineage=2),
    ]
    rows = rows_of([SessionOpened(environment="any"), *events], branches="all")
    assert [[step.get("is_copied_context", False) for step in row["steps"]] for row in rows] == [
        [False] * 4,
        [False, True, False, False],
    ]
    read = [read_line(orjson.dumps(row)).attempt({}, environment="any").events for row in rows]
    spoken = [[text_of(event.items[0]) for event in one if isinstance(event, ModelCall)] for one in read]
    assert spoken == [["first", "right"], ["left"]]


@pytest.mark.parametrize("arguments", ["{oops", "[1]"])
def test_malformed_arguments_are_kept_as_text(arguments):
    events = trace(turn(call(arguments)), ToolResult(call_id="call_1", name="f", output="no"), turn(said("22")))
    [row] = rows_of(events)
    [written] = row["steps"][1]["tool_calls"]
    assert (written["arguments"], written["extra"]) == ({}, {"raw_arguments": arguments})
    read = read_line(orjson.dumps(row)).attempt({}, environment="any").events
    assert next(iter(TraceGraph(read).calls.values())).items[0]["arguments"] == arguments


def test_a_rollout_without_replies_has_no_trajectory():
    with pytest.raises(Dropped, match="no_assistant_turn"):
        rows_of(trace())
