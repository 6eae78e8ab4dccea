"""Episodes of verifiers' traces.jsonl: the branch that counts, its tokens, weighted rewards, and what went wrong."""

import json

import pytest

from apps.gym.traces.events import ErrorRaised, ModelCall, ToolResult, Verification
from apps.gym.traces.items import text_of
from apps.gym.traces.tokens import restore_tokens
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import ImportRefused
from apps.rollouts.models import Rollout
from tests.factories import make_agent, make_dataset
from tests.rollouts.stored import as_file

pytestmark = pytest.mark.django_db
TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}


def node(parent, role, content, *, sampled=False, tokens=(), mask=(), logprobs=(), **message):
    given = {"role": role, "content": content, **message}
    told = {"token_ids": list(tokens), "mask": list(mask), "logprobs": list(logprobs)}
    return {"parent": parent, "message": given, "sampled": sampled, "timestamp": 1.0, **told}


def nodes():
    """A call, its output and an answer; beside them a branch that was begun anew and dropped."""
    call = {"id": "c1", "name": "add", "arguments": '{"a": 2}'}
    return [
        node(None, "system", "Use the tools.", tokens=[1], mask=[False]),
        node(0, "user", "What is 2 + 2?", tokens=[2, 3], mask=[False, False]),
        node(1, "assistant", "dropped", sampled=True, tokens=[9, 9], mask=[False, True], logprobs=[-9.0]),
        node(1, "assistant", "", sampled=True, tokens=[4, 5], mask=[False, True], logprobs=[-0.5], tool_calls=[call]),
        node(3, "tool", "4", tool_call_id="c1", tokens=[6], mask=[False]),
        node(
            4, "assistant", "It is 4.", sampled=True, tokens=[7, 8, 8], mask=[False, True, True], logprobs=[-1.0, -2.0]
        ),
    ]


def trace(**fields):
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "cached_input_tokens": 2}
    return {
        "version": 1,
        "id": "t1",
        "task": {"type": "Sums", "data": {"idx": 7, "prompt": "What is 2 + 2?", "answer": "4", "level": "easy"}},
        "agent": {"config": {"model": "of-the-run"}, "name": "solver", "trainable": True},
        "tools": [TOOL],
        "nodes": nodes(),
        "calls": [
            {"node": 3, "model": "small", "finish_reason": "tool_calls", "usage": usage},
            {"node": 5, "model": "small", "finish_reason": "stop", "usage": usage},
        ],
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "format": {"score": 0.5, "weight": 1.0}, "late": None},
        "metrics": {"length": 12.0, "judged": None},
        "stop_condition": "agent_completed",
        "is_completed": True,
        "ok": True,
        "errors": [],
        **fields,
    }


def episode(*traces, **fields):
    task = {"type": "Sums", "data": {"idx": 7}}
    return {"id": "e1", "env": {"id": "sums"}, "task": task, "ok": True, "errors": [], "traces": list(traces), **fields}


def rollouts_of(*rows):
    imported = import_rollouts(ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent()), files=[as_file(*rows)])
    return list(Rollout.objects.filter(collection=imported.collection).select_related("task").order_by("pk"))


def test_the_last_branch_of_an_episode_is_the_trace_with_its_tokens():
    [rollout] = rollouts_of(episode(trace()))
    events = restore_tokens(rollout.trace(tokens=True))
    assert [type(event) for event in events[2:]] == [ModelCall, ToolResult, ModelCall, Verification]
    assert [text_of(item) for item in events[4].items] == ["It is 4."]
    first, second = events[2].items[-1], events[4].items[-1]
    assert (first["prompt_token_ids"], first["generation_token_ids"]) == ([1, 2, 3, 4], [5])
    assert (second["prompt_token_ids"], second["generation_token_ids"]) == ([1, 2, 3, 4, 5, 6, 7], [8, 8])
    assert second["generation_log_probs"] == [-1.0, -2.0]
    assert (rollout.reward, rollout.components) == (1.0, {"correct": 0.5, "format": 0.5, "length": 12.0})
    assert (rollout.model_version, rollout.stop_reason, rollout.turns) == ("small", "answered", 2)
    assert (rollout.input_tokens, rollout.output_tokens) == (14, 6)
    row = rollout.task.row
    assert (row["id"], row["expected_answer"], row["info"]) == (7, "4", {"answer": "4", "level": "easy"})
    assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["add"]


def test_a_node_with_a_log_probability_of_nan_is_imported_without_its_tokens():
    row = episode(trace())
    last = (row["traces"][0] if "traces" in row else row)["nodes"][-1]
    last["logprobs"][1] = float("nan")
    [rollout] = rollouts_of(json.dumps(row).encode())
    calls = [event for event in rollout.trace(tokens=True) if isinstance(event, ModelCall)]
    assert [(call.tokens is None, call.tokens_note) for call in calls] == [(False, ""), (True, "logprob_not_finite")]


def test_a_trace_without_its_episode_and_episodes_of_one_task_are_one_group():
    rollouts = rollouts_of(trace(), episode(trace()), episode(trace(nodes=nodes()[:3])))
    assert [(rollout.task.index, rollout.repeat) for rollout in rollouts] == [(0, 0), (0, 1), (0, 2)]
    assert rollouts[2].answer == "dropped"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("max_turns", "max_steps"), ("max_total_tokens", "token_limit"), ("context_length", "context_length")],
)
def test_the_limit_that_ended_an_attempt_has_a_name_here(theirs, ours):
    [rollout] = rollouts_of(episode(trace(stop_condition=theirs)))
    assert (rollout.stop_reason, rollout.trace()[-1].details["stop_condition"]) == (ours, theirs)


def test_a_reply_that_was_cut_is_told_by_its_call():
    calls = [{"node": 5, "model": "small", "finish_reason": "length"}]
    assert rollouts_of(episode(trace(calls=calls)))[0].stop_reason == "max_output_tokens"


def test_an_attempt_that_failed_has_no_reward():
    error = {"type": "ProviderError", "message": "502 from the provider"}
    broken = trace(ok=False, errors=[error], rewards={"correct": None}, stop_condition="error", nodes=nodes()[:2])
    lost = trace(ok=False, errors=[{"type": "SandboxError", "message": "gone"}], nodes=nodes())
    first, second = rollouts_of(episode(broken, ok=False), episode(lost, ok=False))
    assert first.trace()[-1] == ErrorRaised(kind="policy_error", message="model_error: 502 from the provider")
    assert [(one.status, one.error_kind, one.reward) for one in (first, second)] == [
        ("failed", "policy_error", None),
        ("failed", "environment_error", None),
    ]


def test_an_attempt_that_nothing_scored_is_left_to_people():
    [rollout] = rollouts_of(episode(trace(rewards={"correct": None})))
    assert (rollout.status, rollout.reward) == ("completed", None)


def test_of_several_agents_the_one_that_is_trained_counts():
    judge = trace(agent={"name": "judge", "trainable": False, "config": {}}, rewards={})
    assert [rollout.reward for rollout in rollouts_of(episode(judge, trace()))] == [1.0]


BAD = {
    "two that are trained": (episode(trace(), trace()), "not_one_trace", "/traces has 2 traces of trained agents"),
    "none": (episode(), "not_one_trace", "/traces holds no trace"),
    "a circle": (episode(trace(nodes=[node(0, "user", "x")])), "wrong_type", "/traces/0/nodes/0/parent must be"),
    "nodes that are none": (episode(trace(nodes=[7])), "wrong_type", "/traces/0/nodes must be a list of nodes"),
    "nobody sampled": (episode(trace(nodes=nodes()[:2])), "no_attempt", "/traces/0/nodes has no sampled message"),
    "nobody asked": (
        episode(trace(nodes=[node(None, "assistant", "x", sampled=True)])),
        "no_prompt",
        "/traces/0/nodes starts with the model",
    ),
    "a reward": (episode(trace(rewards={"r": {"score": "1"}})), "reward", "/traces/0/rewards/r must have a score"),
    "a role": (
        episode(trace(nodes=[node(None, "x", "x"), node(0, "assistant", "y", sampled=True)])),
        "unknown_role",
        "/traces/0/nodes/0/role is 'x'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_episode_is_told_with_its_code_and_what_would_be_right(name):
    row, code, words = BAD[name]
    with pytest.raises(ImportRefused) as refused:
        rollouts_of(row)
    [error] = refused.value.errors
    assert (error.code, words in error.message) == (code, True), error.message
