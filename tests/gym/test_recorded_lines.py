"""Recorded rollouts are lines: reading them as graphs changes no byte of payloads, messages, segments or responses."""

import orjson
import pytest

from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.exporters.registry import find_format
from apps.gym.exporters.trl import completion_rows
from apps.gym.rollout_files.rollout_rows import read_attempt
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.traces.courses import course_of
from apps.gym.traces.events import ModelCall, decode_event, encode_event, event_tokens
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.segments import check_prefixes, join_calls, stored_tokens
from apps.gym.trainability import Dropped
from tests.rollouts.stored import NAMES, needs_shared, shared_rows

pytestmark = needs_shared


def recorded(name):
    """Yield the events of each rollout with its task."""
    for row in shared_rows(name):
        stored = read_line(orjson.dumps(row))
        yield read_attempt(stored.row, stored.task, environment="any").events, stored.task


def exported(rows, attempt):
    try:
        return orjson.dumps(list(rows(attempt, Options())))
    except Dropped as why:
        return why.reason


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_rollout_reads_as_the_line_that_it_was(name):
    found = list(recorded(name))
    assert any(isinstance(event, ModelCall) for events, _ in found for event in events)
    for events, task in found:
        payloads = [encode_event(event) for event in events]
        read = [decode_event(payload, event_tokens(event)) for payload, event in zip(payloads, events, strict=True)]
        graph = TraceGraph(read)
        assert graph.is_line
        assert [encode_event(event) for event in graph.main] == payloads
        assert course_of(graph.main) == course_of(events)
        assert [one.segment for one in join_graph(graph)] == join_calls(stored_tokens(events))
        assert check_graph(graph) == check_prefixes(stored_tokens(events))
        attempt = Attempt(events=read, task=task, reward=1.0, columns={"rollout_id": 1})
        assert exported(find_format("trl_sft_completion").rows, attempt) == exported(completion_rows, attempt)
