"""Rollouts go out as NeMo Gym rows and come back the same, and its servers verify them to the same rewards."""

import json
from dataclasses import asdict

import aiohttp
import pytest
from asgiref.sync import async_to_sync

from apps.environments.models import Adapter
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.exporters.nemo_gym_rollouts import input_row
from apps.gym.serving.aggregating import aggregate_metrics
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.reverification.reverification_jobs import apply_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from tests.factories import make_agent, make_collection, make_dataset, make_environment, make_rollout, make_trace
from tests.gym.verifiers.test_nemo_gym_rollouts import KINDS
from tests.nemo_gym import kinds
from tests.nemo_gym.servers import serving
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import NAMES, as_file, needs_shared, shared_files, shared_rows, stored_row

pytestmark = [pytest.mark.django_db, needs_shared]


def imported(files, environment=None):
    dataset = make_dataset(rows=[], environment=environment or make_environment())
    return import_rollouts(
        ImportOrder(dataset=dataset, agent=make_agent(slug=f"agent-{dataset.pk}")), files=files
    ).collection


def exported(collection, path):
    export = queue_export(
        ExportOrder(format="nemo_gym_rollouts", collection=collection, filters={"include_flagged": True})
    )
    written = write_export(export=export, path=path)
    assert (written.state, written.rows) == ("ready", collection.completed)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_was_read_is_written_with_all_that_it_said(name, tmp_path):
    # An export goes by task, which is another order than that of the lines.
    given = sorted(shared_rows(name), key=lambda row: row["response"]["id"])
    written = exported(imported(shared_files(name)), tmp_path / "out.jsonl")
    written.sort(key=lambda row: row["response"]["id"])
    assert [{key: row.get(key) for key in was} for was, row in zip(given, written, strict=True)] == given
    before, after = (aggregate_metrics({"verify_responses": rows})["key_metrics"] for rows in (given, written))
    assert {name: after.get(name) for name in before} == before
    # What stands beside it is the task's, and ours.
    ours = {"gymweb", "_gymweb_details", "_ng_task_index", "_ng_rollout_index", "_ng_rollout_id", "agent_ref"}
    fields = {key for line in shared_files(name)[1].stream for key in json.loads(line)}
    assert {key for was, row in zip(given, written, strict=True) for key in set(row) - set(was)} <= ours | fields


def voted(text, extracted, repeat):
    return stored_row(answer=text, reward=float(extracted == 2), extracted_answer=extracted, _ng_task_index=3,
                      _ng_rollout_index=repeat)  # fmt: skip


def test_metrics_of_what_went_out_and_came_back_are_those_before(tmp_path):
    texts = [("I say it is 1 apple", 1), ("so 1", 1), ("Thus 5 - 3. I conclude 2", 2), ("I conclude 2", None)]
    first = imported([as_file(*(voted(text, extracted, n) for n, (text, extracted) in enumerate(texts)))])
    rows = exported(first, tmp_path / "out.jsonl")
    assert [row["extracted_answer"] for row in rows] == [1, 1, 2, None]
    assert [row["_ng_rollout_id"] for row in rows] == ["3-0", "3-1", "3-2", "3-3"]
    second = imported([as_file(*rows)])
    assert second.rollouts.get(repeat=0).task.row == first.rollouts.get(repeat=0).task.row
    before, after = (measure_collection(collection) for collection in (first, second))
    assert after.majority_at_k == before.majority_at_k
    assert before.majority_at_k[4] == 0.0


def test_numbers_that_do_not_fit_together_are_given_anew(tmp_path):
    rows = [voted("so 2", 2, 0), {**voted("so 1", 1, 1), "responses_create_params": {"input": "Another?"}}]
    again = exported(
        imported([as_file(rows[0], name="a.jsonl"), as_file(rows[1], name="b.jsonl")]), tmp_path / "out.jsonl"
    )
    assert [row["_ng_rollout_id"] for row in again] == ["0-0", "1-1"]


def test_what_an_agent_observed_goes_with_the_token_ids_where_a_credential_was_taken_out(tmp_path):
    observed = {"ng_trajectory": {"turns": [{"prompt_token_ids": [1, 2]}]}, "skills_ref": {"name": "math"}}
    judged = [{"judge": "x" * 30_000}]
    secret = f"Bearer sk-proj-{'AbCdEf0123456789' * 4}"
    rows = [stored_row(answer=said, judge_evaluations=judged, **observed) for said in ("4", secret)]
    clean, redacted = exported(imported([as_file(*rows)]), tmp_path / "out.jsonl")
    assert {name: clean[name] for name in observed} == observed
    # What is too large for a trace's page is kept all the same.
    assert [row["judge_evaluations"] for row in (clean, redacted)] == [judged, judged]
    assert ("ng_trajectory" in redacted, redacted["skills_ref"]) == (False, {"name": "math"})
    assert "AbCdEf" not in json.dumps(redacted)


def test_verifier_results_are_exported_and_imported_again(tmp_path):
    task = {"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4", "value": 7, "score": 1}
    environment = make_environment()
    dataset = make_dataset(rows=[task], environment=environment)
    collection = make_collection(dataset=dataset, total=1, completed=1)
    details = {"extracted_answer": "4", "expected_answer": "4", "is_exact": True, "score": 0.5, "reward": 9, "_ng_x": 1}
    trace = make_trace(tool_call=False)
    trace[-1].details = details
    rollout = make_rollout(collection, trace=trace, components={}, answer="4")
    [row] = exported(collection, tmp_path / "out.jsonl")
    assert {key: row[key] for key in (*task, "extracted_answer", "is_exact", "explanation")} == {
        **task, "responses_create_params": row["responses_create_params"], "score": 0.5, "extracted_answer": "4",
        "is_exact": True, "explanation": "compared"}  # fmt: skip
    assert (row["reward"], "_ng_x" in row) == (1.0, False)
    assert row["response"]["created_at"] == rollout.finished_at.timestamp()
    asked = input_row(row)
    assert {key: asked[key] for key in set(asked) - {"agent_ref"} if key[0] != "_"} == {
        **task,
        "responses_create_params": {"input": row["responses_create_params"]["input"]},
    }
    [again] = imported([as_file(row)]).rollouts.all()
    kept = {key: value for key, value in again.task.row.items() if key != "responses_create_params"}
    assert kept == {"expected_answer": "4", "value": 7, "score": 1}
    assert again.trace()[-1].details == {
        name: details[name] for name in ("extracted_answer", "expected_answer", "is_exact", "score")
    }
    assert (again.trace()[-1].explanation, again.answer) == ("compared", rollout.answer)


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
    before, after = (asdict(measure_collection(collection)) for collection in (first, second))
    assert after == before
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
        done = finish_reverification(reverification=queue_reverification(ReverificationOrder(collection=collection)))
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
def test_a_resource_server_gives_exported_rows_the_same_reward(name, tmp_path):
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


def test_an_input_row_has_no_results(tmp_path):
    row = exported(imported(shared_files("example_tool_call_multireward")), tmp_path / "out.jsonl")[0]
    asked = input_row(row)
    said = {"correctness", "format", "predicted_calls", "schema_valid"}
    of_the_attempt = {"response", "reward", "reward_components", "gymweb", "_gymweb_details", "_ng_rollout_id"}
    assert set(row) - set(asked) == of_the_attempt | said
    assert (asked["_ng_task_index"], asked["_ng_rollout_index"]) == (1, 0)
    assert asked["agent_ref"] == row["agent_ref"]
    assert None not in asked["responses_create_params"].values()
    assert asked["responses_create_params"]["input"] == row["responses_create_params"]["input"]
