"""Rollouts go out as NeMo Gym rows and come back the same, and its servers verify them to the same rewards."""

import json

import aiohttp
import pytest
from asgiref.sync import async_to_sync

from apps.environments.models import Adapter
from apps.exports.exporting import write_export
from apps.exports.ordering import queue_export
from apps.gym.exporters.nemo_gym_rollouts import input_row
from apps.rollouts.importing import import_rollouts
from apps.rollouts.reverifying import apply_reverification, finish_reverification, queue_reverification
from tests.factories import make_agent, make_dataset, make_environment
from tests.gym.verifiers.test_nemo_gym_rollouts import KINDS
from tests.nemo_gym import kinds
from tests.nemo_gym.servers import serving
from tests.rollouts.stored import NAMES, as_file, needs_shared, shared_files, shared_rows

pytestmark = [pytest.mark.django_db, needs_shared]


def imported(files, environment=None):
    dataset = make_dataset(rows=[], environment=environment or make_environment())
    return import_rollouts(dataset=dataset, files=files, agent=make_agent(slug=f"agent-{dataset.pk}")).collection


def exported(collection, path):
    export = queue_export(format="nemo_gym_rollouts", collection=collection, filters={"include_flagged": True})
    written = write_export(export=export, path=path)
    assert (written.state, written.rows) == ("ready", collection.completed)
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_origin(rows):
    """Rows without what this installation gave: ids of the collection and the rollouts, the agent's name, and the
    numbers of tasks, of which their order stays."""
    told = {"stop_reason", "tokens", "model_version"}
    numbers = sorted({row["_ng_task_index"] for row in rows})
    return [
        {
            **row,
            "gymweb": {key: value for key, value in row["gymweb"].items() if key in told},
            "agent_ref": None,
            "_ng_task_index": numbers.index(row["_ng_task_index"]),
            "_ng_rollout_id": None,
        }
        for row in rows
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_went_out_comes_back_and_goes_out_the_same(name, tmp_path):
    first = imported(shared_files(name))
    rows = exported(first, tmp_path / "first.jsonl")
    second = imported([as_file(*rows)])
    again = exported(second, tmp_path / "second.jsonl")
    assert without_origin(again) == without_origin(rows)
    if first.version.task_count == len({row["_ng_task_index"] for row in rows}):
        # Each task was attempted: then the numbers are the same as well.
        assert [row["_ng_rollout_id"] for row in again] == [row["_ng_rollout_id"] for row in rows]
    for one, other in zip(first.rollouts.order_by("pk"), second.rollouts.order_by("pk"), strict=True):
        assert (one.reward, one.components, one.stop_reason) == (other.reward, other.components, other.stop_reason)
        assert (one.turns, one.tool_calls, one.output_tokens) == (other.turns, other.tool_calls, other.output_tokens)


@pytest.mark.parametrize(
    "name", ["mcqa", "string_match", "xlam_fc", "example_multi_step", "example_tool_call_multireward"]
)
def test_verified_again_both_get_the_same_rewards(name, tmp_path):
    environment = make_environment(adapter=Adapter.DECLARED, builtin="", verifier=KINDS[name])
    first = imported(shared_files(name), environment)
    second = imported([as_file(*exported(first, tmp_path / "out.jsonl"))], environment)
    rewards = []
    for collection in (first, second):
        done = finish_reverification(reverification=queue_reverification(collection=collection))
        apply_reverification(reverification=done)
        finish_reverification(reverification=done)
        rewards.append(list(collection.rollouts.order_by("pk").values_list("reward", "components")))
    assert rewards[0] == rewards[1]
    assert None not in {reward for reward, _ in rewards[0]}


SERVERS = {
    "example_single_tool_call": kinds.SINGLE_TOOL_CALL,
    "example_multi_step": kinds.MULTI_STEP,
    "example_tool_call_multireward": kinds.MULTIREWARD,
    "mcqa": kinds.MCQA,
    "string_match": kinds.STRING_MATCH,
    "xlam_fc": kinds.XLAM,
    "calendar": kinds.CALENDAR,
    "reasoning_gym": kinds.REASONING,
}
OLD_REWARDS = {"mcqa", "string_match"}
"""Some of these were recorded under another rule than that of the servers here."""


@pytest.mark.parametrize("name", SERVERS)
def test_a_resource_server_gives_what_went_out_the_reward_of_what_came_in(name, tmp_path):
    collection = imported(shared_files(name))
    rows = exported(collection, tmp_path / "out.jsonl")
    tasks = [rollout.task.row for rollout in collection.rollouts.order_by("pk")]
    given = [{**task, "response": row["response"]} for task, row in zip(tasks, shared_rows(name), strict=True)]
    sent = [{**input_row(row), "response": row["response"]} for row in rows]

    async def verify(payloads):
        async with serving(SERVERS[name]) as server, aiohttp.ClientSession() as session:
            replies = []
            for payload in payloads:
                async with session.post(f"{server.base_url}/verify", json=payload) as reply:
                    replies.append((reply.status, (await reply.json()).get("reward")))
            return replies

    verified = async_to_sync(verify)(sent)
    assert verified == async_to_sync(verify)(given)
    assert {status for status, _ in verified} == {200}
    if name not in OLD_REWARDS:
        assert [reward for _, reward in verified] == [row["reward"] for row in rows]


def test_an_input_says_nothing_of_the_attempt(tmp_path):
    row = exported(imported(shared_files("example_tool_call_multireward")), tmp_path / "out.jsonl")[0]
    asked = input_row(row)
    assert set(row) - set(asked) == {"response", "reward", "reward_components", "gymweb", "_ng_rollout_id"}
    assert (asked["_ng_task_index"], asked["_ng_rollout_index"]) == (1, 0)
    assert asked["agent_ref"]["type"] == "responses_api_agents"
