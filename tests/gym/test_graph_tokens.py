"""Calls of several agents that interleave become one training sequence each."""

import pytest

from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.graph_tokens import TokenPacker
from apps.gym.traces.segments import check_prefixes, join_calls, stored_tokens
from apps.gym.traces.tokens import TokensUnreadable, capture_tokens, read_base
from tests.gym.traces import weather_trace


def agent(base, calls):
    """Return (prompt, generation) of each call: 2,000 ids of a system prompt, then 200 ids a turn."""
    ids, turns = list(range(base, base + 2000)), []
    for turn in range(calls):
        sampled = [base + 5000 + turn * 200 + place for place in range(100)]
        turns.append((list(ids), sampled))
        ids += [*sampled, *(base + 9000 + turn * 200 + place for place in range(100))]
    return turns


def capture(calls):
    """Return the stored calls of (parent, prompt, generation), as they complete."""
    packer, events = TokenPacker(), []
    for number, (parent, prompt, sampled) in enumerate(calls, start=1):
        tokens = packer.pack(number, parent, capture_tokens(prompt, sampled, [-0.1] * len(sampled)))
        said = {"type": "message", "role": "assistant", "content": str(number)}
        events.append(ModelCall(seen=1, items=[said], tokens=tokens, call=number, parent=parent, kept=1, lineage=1))
    return events


def interleave(first, second):
    calls = [call for pair in zip(first, second, strict=True) for call in pair]
    return [(max(0, number - 2), *call) for number, call in enumerate(calls, start=1)]


def test_an_interleaved_subagent_costs_what_it_costs_alone():
    graph = TraceGraph(capture(interleave(agent(0, 10), agent(100_000, 10))))
    found = join_graph(graph)
    assert (len(found), sum(len(one.segment.input_ids) for one in found)) == (2, 7_800)
    assert sum(len(event.tokens) for event in graph.calls.values()) <= 50_000
    figures = check_graph(graph)
    assert (figures.calls, figures.captured, figures.exact, figures.segments) == (20, 20, 18, 2)
    assert (figures.generated, figures.breaks) == (2_000, [])


def test_two_children_train_their_parent_once():
    graph = TraceGraph(capture([(0, [1], [2]), (1, [1, 2, 3], [4]), (1, [1, 2, 5], [6])]))
    one, other = join_graph(graph)
    assert (one.segment.input_ids.tolist(), one.segment.mask.tolist()) == ([1, 2, 3, 4], [0, 1, 0, 1])
    assert (other.segment.input_ids.tolist(), other.segment.mask.tolist()) == ([1, 2, 5, 6], [0, 0, 0, 1])
    assert other.segment.logprobs.tolist() == [0.0, 0.0, 0.0, -0.1]
    assert (one.segment.calls, other.segment.calls) == ([1, 2], [1, 3])
    assert check_graph(graph).segments == 2


def test_a_break_is_between_a_call_and_its_ancestor():
    graph = TraceGraph(capture([(0, [1], [2]), (0, [7], [8]), (1, [1, 9], [4])]))
    figures = check_graph(graph)
    assert [(one.call, one.after, one.agreed, one.seen, one.within) for one in figures.breaks] == [
        (3, 1, 1, 2, "reply")
    ]
    assert figures.segments == len(join_graph(graph)) == 3


def test_a_packer_without_room_packs_against_an_earlier_call_or_whole():
    packer = TokenPacker(max_bytes=24)
    captures = [capture_tokens([1, 2, 3, 4, call], [9], [-0.1]) for call in (1, 2, 3)]
    stored = [packer.pack(call, int(call > 1), capture) for call, capture in enumerate(captures, start=1)]
    assert [read_base(one) for one in stored] == [0, 1, 0]
    calls = [
        ModelCall(seen=1, items=[], tokens=one, call=call, parent=int(call > 1), kept=0)
        for call, one in enumerate(stored, start=1)
    ]
    graph = TraceGraph(calls)
    assert [join_calls(stored_tokens(graph.line(call)))[-1].input_ids.tolist() for call in (1, 2, 3)] == [
        [1, 2, 3, 4, call, 9] for call in (1, 2, 3)
    ]


def test_readers_of_a_line_refuse_the_tokens_of_a_graph():
    stored = stored_tokens(capture([(0, [1], [2]), (1, [1, 2, 3], [4])]))
    with pytest.raises(TokensUnreadable):
        join_calls(stored)


def test_a_line_has_the_sequences_and_figures_that_it_had():
    graph = TraceGraph(weather_trace())
    assert [one.segment for one in join_graph(graph)] == join_calls(stored_tokens(graph.events))
    assert check_graph(graph) == check_prefixes(stored_tokens(graph.events))
