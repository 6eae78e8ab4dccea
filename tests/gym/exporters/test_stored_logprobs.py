"""Tokens of GymWeb 0.2.0 that are not stored today: impossible log probabilities, fewer ids than their usage."""

from array import array

import msgspec
import pytest

from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.graph_tokens import TokenPacker
from apps.gym.traces.tokens import TokenCapture, pack_ids, pack_tokens
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt, paris

CASES = [(0.5, "logprob_above_0"), (3.2, "logprob_above_0"), (-9999.0, "logprob_placeholder")]
CASES += [(value, "logprob_not_finite") for value in (float("nan"), float("-inf"), float("inf"))]


def packed(prompt, generation, logprobs, code="f"):
    values = array(code, logprobs)
    ids = {"prompt": pack_ids(prompt), "generation": pack_ids(generation)}
    return TokenCapture(**ids, logprobs=values.tobytes(), logprob_bytes=values.itemsize)


def stored(first, code="f"):
    """A trace of two calls, whose first logprob is this one."""
    captures = [packed([1, 2, 3], [4, 5], [first, -0.5], code), packed([1, 2, 3, 4, 5, 6], [7], [-0.25], code)]
    before, events = b"", []
    for event in paris():
        if isinstance(event, ModelCall):
            capture = captures.pop(0)
            event = msgspec.structs.replace(event, tokens=pack_tokens(capture, before=before))  # noqa: PLW2901
            before = capture.ids
        events.append(event)
    return events


def rows(slug, events):
    return list(FORMATS[slug].rows(attempt(TraceGraph(events).events), resolve_options(FORMATS[slug], {})))


@pytest.mark.parametrize("code", ["f", "d"])
@pytest.mark.parametrize(("logprob", "note"), CASES)
def test_exports_leave_them_out_by_name(logprob, note, code):
    events = stored(logprob, code)
    with pytest.raises(Dropped, match="impossible_logprobs"):
        rows("trl_sft_tokens", events)
    [row] = rows("scored_rollouts", events)
    assert (row["input_ids"], row["loss_mask"]) == ([1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 1])
    assert (row["logprobs"], row["calls"], row["captured_calls"]) == ([*[0.0] * 6, -0.25], 2, 1)
    [row] = rows("nemo_gym_rollouts", events)
    assert [item["generation_token_ids"] for item in row["response"]["output"] if "prompt_token_ids" in item] == [[7]]
    calls = TraceGraph(events).calls
    assert [(call.tokens is None, call.tokens_note) for call in calls.values()] == [(True, note), (False, "")]


@pytest.mark.parametrize("code", ["f", "d"])
@pytest.mark.parametrize("logprob", [0.0, -0.0, -1e-9, 9e-6, -8191.0, -9000.0])
def test_possible_ones_stay(logprob, code):
    events = stored(logprob, code)
    assert TraceGraph(events).events == events


def counted(*usages):
    """The trace of two calls with 3 and 6 prompt ids, and 2 and 1 sampled ones, with these usages."""
    given = iter(usages)
    return [
        msgspec.structs.replace(event, usage=next(given)) if isinstance(event, ModelCall) else event
        for event in stored(-0.5)
    ]


FIRST, SECOND = {"input_tokens": 3, "output_tokens": 2}, {"input_tokens": 6, "output_tokens": 1}


@pytest.mark.parametrize("usage", [{"output_tokens": 3}, {**FIRST, "output_tokens": 3}, {**FIRST, "input_tokens": 4}])
def test_tokens_of_another_number_than_their_usage_are_left_out(usage):
    events = counted(usage, SECOND)
    with pytest.raises(Dropped, match="token_counts_differ"):
        rows("trl_sft_tokens", events)
    [row] = rows("scored_rollouts", events)
    assert (row["input_ids"], row["loss_mask"]) == ([1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 1])
    [row] = rows("nemo_gym_rollouts", events)
    assert [item["generation_token_ids"] for item in row["response"]["output"] if "prompt_token_ids" in item] == [[7]]
    [row] = rows("atif", events)
    assert [step["metrics"].get("completion_token_ids") for step in row["steps"] if "metrics" in step] == [None, [7]]
    graph = TraceGraph(events)
    assert graph.left_out == {1: "usage_differs"}
    assert TraceGraph(graph.events).left_out == {}


@pytest.mark.parametrize(
    "usages", [(FIRST, SECOND), ({}, SECOND), ({"input_tokens": 0, "output_tokens": 0}, SECOND), (FIRST, {})]
)
def test_tokens_of_the_same_number_or_without_a_usage_stay(usages):
    events = counted(*usages)
    assert TraceGraph(events).events == events


def test_a_usage_of_the_whole_attempt_is_not_compared():
    """Rows of responses have it at their last turn."""
    events = counted({}, {"input_tokens": 9, "output_tokens": 3})
    assert TraceGraph(events).events == events


@pytest.mark.parametrize(("logprob", "trained"), [(3.2, [4]), (-0.5, [2, 4])])
def test_segments_of_captured_agents_leave_them_out(logprob, trained):
    packer = TokenPacker()
    captures = [packed([1], [2], [logprob]), packed([1, 2, 3], [4], [-0.5])]
    events = []
    for number, one in enumerate(captures, start=1):
        place = {"call": number, "parent": number - 1, "kept": 1, "lineage": 1}
        said = {"type": "message", "role": "assistant", "content": str(number)}
        events.append(ModelCall(seen=1, items=[said], tokens=packer.pack(number, number - 1, one), **place))
    graph = TraceGraph(TraceGraph(events).events)
    [found] = join_graph(graph)
    segment = found.segment
    assert segment.input_ids.tolist() == [1, 2, 3, 4]
    assert [one for one, kept in zip(segment.input_ids, segment.mask, strict=True) if kept] == trained
    assert check_graph(graph).generated == len(trained)


def test_damaged_tokens_are_still_reported():
    [_, _, first, *others] = stored(3.2)
    cut = msgspec.structs.replace(first, tokens=first.tokens[:-1])
    with pytest.raises(Dropped, match="tokens_unreadable"):
        rows("scored_rollouts", [cut, *others])
