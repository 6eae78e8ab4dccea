"""Simulated agents of many kinds: the main path is the true one, and only what the model wrote is trained."""

import json
from functools import cache

import pytest
from msgspec.structs import replace

from apps.gym.exporters.protocol import Attempt, resolve_options
from apps.gym.exporters.registry import find_format
from apps.gym.traces.canonical_items import item_digest
from apps.gym.traces.events import ModelCall, Verification
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.relinking import relink
from apps.gym.traces.tokens import read_shape
from apps.gym.trainability import Dropped
from tests.gym.simulated_agents import AGENTS, simulate

SEEDS = range(500)
TEXTS = ("trl_sft", "trl_sft_completion", "trl_sft_turns", "openai_sft", "axolotl_sft", "openrlhf_sft", "verl_sft")


@cache
def simulated():
    """All agents with their graphs. Reading them many times is cheap."""
    return [(agent, agent.graph()) for agent in map(simulate, SEEDS)]


def test_the_main_path_is_right_or_marked_as_ambiguous():
    wrong = [
        (AGENTS[seed % len(AGENTS)].__name__, seed, graph.main_path, agent.right)
        for seed, (agent, graph) in zip(SEEDS, simulated(), strict=True)
        if not graph.main_path.ambiguous and graph.main_leaf not in agent.right
    ]
    assert wrong == []


def test_few_paths_are_ambiguous_if_a_call_wrote_the_answer():
    written = [(agent, graph) for agent, graph in simulated() if agent.answer and is_written(agent)]
    ambiguous = [agent for agent, graph in written if graph.main_path.ambiguous]
    assert len(written) > 300
    assert len(ambiguous) <= 0.02 * len(written)


def is_written(agent):
    return any(agent.answer in text for text in agent.texts.values()) or not agent.answer.startswith("computed")


def attempt_of(agent, graph):
    return Attempt(
        events=[*agent.events(), Verification(reward=1.0)],
        task={"responses_create_params": {"input": []}},
        reward=1.0,
        columns={"rollout_id": 1},
    )


def export(agent, graph, slug, **options):
    format = find_format(slug)
    try:
        return list(format.rows(attempt_of(agent, graph), resolve_options(format, options)))
    except Dropped:
        return []


@pytest.mark.parametrize("branches", ["main", "conversation", "all"])
@pytest.mark.parametrize("slug", TEXTS)
def test_only_turns_that_the_model_wrote_are_trained(slug, branches):
    exported = 0
    for agent, graph in simulated():
        for row in export(agent, graph, slug, branches=branches):
            exported += 1
            for message in trained(slug, row):
                assert digests(message) <= agent.spoken, (slug, message)
    assert exported > 200


def trained(slug, row):
    """Return the assistant messages in the loss of a row."""
    messages = row.get("messages") or row["completion"]
    messages = json.loads(messages) if isinstance(messages, str) else messages
    told = [one for one in messages if one["role"] == "assistant"]
    return [one for one in told if one.get("weight") != 0 and one.get("train") is not False]


def digests(message):
    text, calls = message.get("content"), message.get("tool_calls") or []
    items = [{"type": "message", "role": "assistant", "content": text}] if text else []
    for call in calls:
        given = call["function"]["arguments"]
        arguments = given if isinstance(given, str) else json.dumps(given)
        items.append(
            {"type": "function_call", "call_id": call["id"], "name": call["function"]["name"], "arguments": arguments}
        )
    return {item_digest(item) for item in items}


def test_the_tokens_of_the_true_conversation_are_exported_once():
    true = lost = 0
    for agent, graph in simulated():
        if graph.main_path.ambiguous:
            continue
        rows = export(agent, graph, "trl_sft_tokens", branches="conversation")
        sampled = {call: shape_of(graph.calls[call]).generated for call in agent.main}
        true += sum(sampled.values())
        kept = sum(label >= 0 for row in rows for label in row["labels"])
        own = {call for leaf in graph.conversation_leaves for call in graph.path(leaf)}
        assert kept == sum(shape_of(graph.calls[call]).generated for call in own)
        if graph.main_leaf in agent.main:
            lost += sum(count for call, count in sampled.items() if call not in own)
    assert true > 2_000
    assert lost <= 0.01 * true


def shape_of(call: ModelCall):
    return read_shape(call.tokens)


def test_each_turn_of_a_conversation_has_one_row():
    for agent, graph in simulated():
        rows = export(agent, graph, "trl_sft_turns", branches="conversation")
        own = {call for leaf in graph.conversation_leaves for call in graph.path(leaf)}
        assert len(rows) == len(own)


def test_links_derived_again_are_those_of_the_capture():
    for agent, _ in simulated():
        assert relink(agent.events()) == {}


def test_links_that_an_earlier_version_stored_wrongly_are_repaired():
    for agent, graph in simulated()[:200]:
        events = agent.events()
        wrong = [forget(event, graph) if isinstance(event, ModelCall) else event for event in events]
        changed = relink(wrong)
        repaired = TraceGraph([changed.get(place, event) for place, event in enumerate(wrong)])
        assert [links(call) for call in repaired.calls.values()] == [links(call) for call in graph.calls.values()]
        assert repaired.main_path == graph.main_path


def forget(call, graph):
    """Return a call as a root of its own, with its whole request."""
    tools = graph.tools(call.call)
    own = {"parent": 0, "kept": 0, "lineage": call.call, "retry_of": 0, "spawned_by": 0, "edited": []}
    request = graph.request(call.call)
    reason = "first" if call.call == 1 else "subagent"
    return replace(call, **own, items_in=request, tools_in=tools, root_reason=reason, ambiguous=False)


def links(call):
    return call.call, call.parent, call.kept, call.lineage, call.root_reason, call.spawned_by, call.retry_of
