import gzip
import json
import math
from io import BytesIO
from typing import Any

import orjson
import pytest
import zstandard
from django.db import OperationalError
from django.utils import timezone

from apps.agents.models import Agent
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import EnvironmentTurn, ErrorRaised, ModelCall, Prompt, ToolResult, Verification
from apps.gym.traces.items import text_of
from apps.gym.traces.tokens import restore_tokens
from apps.policies.models import PolicyModel
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import File, ImportRefused
from apps.rollouts.models import Collection, Rollout, TraceEvent
from apps.rollouts.plans.planning import ABANDONED_AFTER, sweep_plans
from apps.rollouts.reverification.reverification_jobs import apply_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.streams.rollout_stream import describe_rollout
from apps.tasks.models import Task
from tests.factories import make_agent, make_dataset, make_policy_model, make_user
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import NAMES, as_file, needs_shared, said, shared_files, shared_rows, stored_row
from tests.rollouts.test_redaction import everything_stored

pytestmark = pytest.mark.django_db


def import_these(*files, dataset=None, **options):
    dataset = dataset or make_dataset(rows=[])
    agent = Agent.objects.order_by("pk").first() or make_agent()
    return import_rollouts(ImportOrder(dataset=dataset, agent=agent, **options), files=files)


def rollouts_of(imported):
    return list(imported.collection.rollouts.order_by("id"))


@needs_shared
@pytest.mark.parametrize("name", NAMES)
def test_every_stored_rollout_of_the_shared_folder_becomes_a_trace_with_its_reward(name):
    imported = import_these(*shared_files(name))
    rows, rollouts = shared_rows(name), rollouts_of(imported)
    assert imported.collection.state == Collection.State.COMPLETED
    assert [rollout.reward for rollout in rollouts] == [row["reward"] for row in rows]
    for rollout, row in zip(rollouts, rows, strict=True):
        events = rollout.trace()
        said_items = [item for event in events if not isinstance(event, Prompt) for item in event.new_items()]
        wanted = row["response"]["output"]
        assert [item.get("type", "message") for item in said_items] == [item.get("type", "message") for item in wanted]
        assert [item.get("call_id") for item in said_items] == [item.get("call_id") for item in wanted]
        assert rollout.model_version == row["response"]["model"]
        assert rollout.components == row.get("reward_components", {})
        assert events[-1].reward == row["reward"]


@needs_shared
def test_rollouts_find_their_task_rows_by_prompt_and_keep_what_the_verifier_said():
    imported = import_these(*shared_files("example_multi_step"))
    rollout = rollouts_of(imported)[2]
    assert rollout.task.row["id"] == 3
    assert rollout.task.row["expected_synonym_values"] == rollout.trace()[-1].details["parsed_synonym_values"]
    assert set(rollout.trace()[-1].details) == {
        "accuracy",
        "order_instruction_following_failure",
        "original_term_minefield_hit",
        "parsed_synonym_values",
        "set_overlap",
    }
    assert imported.collection.version.task_count == 5


@needs_shared
def test_five_attempts_at_one_task_are_one_group():
    imported = import_these(*shared_files("blackjack"))
    assert {rollout.task.index for rollout in rollouts_of(imported)} == {0}
    assert sorted(rollout.repeat for rollout in rollouts_of(imported)) == [0, 1, 2, 3, 4]
    first = rollouts_of(imported)[0]
    assert [type(event) for event in first.trace()[2:]] == [ModelCall, EnvironmentTurn, ModelCall, Verification]
    assert first.stop_reason == "environment_done"


def test_a_rollout_without_a_task_row_keeps_its_own_task_less_what_verifiers_say():
    imported = import_these(as_file(stored_row(extracted_answer="4", options=["4", "5"], agent_ref={"name": "a"})))
    [rollout] = rollouts_of(imported)
    assert rollout.task.row == {
        "responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 2?"}]},
        "expected_answer": "4",
        "options": ["4", "5"],
    }
    assert rollout.trace()[-1].details == {"extracted_answer": "4"}
    assert (rollout.stop_reason, rollout.turns, rollout.attempt, rollout.answer) == ("answered", 1, 1, "4")


def test_nulls_of_older_rows_are_stripped():
    row = stored_row()
    row["responses_create_params"] |= {"tools": None, "tool_choice": None, "stream": None}
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert set(rollout.task.row["responses_create_params"]) == {"input"}


def test_materialised_inputs_bring_the_ground_truth_back():
    row = stored_row(_ng_task_index=7, _ng_rollout_index=1)
    del row["expected_answer"]
    inputs = [
        {
            "responses_create_params": row["responses_create_params"],
            "expected_answer": "4",
            "_ng_task_index": 7,
            "_ng_rollout_index": repeat,
        }
        for repeat in (0, 1)
    ]
    imported = import_these(as_file(row), as_file(*inputs, name="inputs.jsonl"))
    [rollout] = rollouts_of(imported)
    assert (rollout.repeat, rollout.task.row["expected_answer"]) == (1, "4")
    assert "_ng_rollout_index" not in rollout.task.row
    assert Task.objects.filter(version=imported.collection.version).count() == 1


def test_failures_fail_with_their_kind_and_without_a_reward():
    judged = stored_row(reward=0.0, _ng_failure_class="judge_failed", _ng_failure_judge_error="no verdict")
    lost = {"responses_create_params": {"input": "x"}, "_ng_failure_class": "agent_run_failed"}
    imported = import_these(as_file(stored_row(), judged, lost))
    kinds = [(rollout.status, rollout.error_kind, rollout.reward) for rollout in rollouts_of(imported)]
    assert kinds == [("completed", "", 1.0), ("failed", "judge_error", None), ("failed", "environment_error", None)]
    collection = imported.collection
    assert (collection.total, collection.completed, collection.failed) == (3, 1, 2)
    assert (collection.rewarded, collection.reward_sum) == (1, 1.0)
    assert rollouts_of(imported)[1].trace()[-1] == ErrorRaised(kind="judge_error", message="judge_failed: no verdict")


def test_a_skipped_verification_leaves_the_judgement_to_people():
    [rollout] = rollouts_of(import_these(as_file(stored_row(verification_skipped=True, reward=0.0))))
    assert (rollout.status, rollout.reward) == ("completed", None)


def test_token_captures_survive_and_part_the_turns():
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
    first = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    second = {"prompt_token_ids": [1, 2, 3, 4], "generation_token_ids": [5, 6], "generation_log_probs": [-0.25, 0.0]}
    output = [call | first, {"type": "function_call_output", "call_id": "c1", "output": "2"}, said("4", **second)]
    row = stored_row()
    row["response"]["output"] = output
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert [type(event) for event in rollout.trace()[2:]] == [ModelCall, ToolResult, ModelCall, Verification]
    assert rollout.trace()[3].name == "add"
    calls = [event for event in restore_tokens(rollout.trace(tokens=True)) if isinstance(event, ModelCall)]
    assert calls[0].items[-1] == call | first
    assert {key: calls[1].items[-1][key] for key in second} == second


def test_a_turn_whose_tokens_are_broken_is_imported_without_them_and_says_so():
    row = stored_row()
    row["response"]["output"] = [
        said("4", prompt_token_ids=[1], generation_token_ids=[2, 3], generation_log_probs=[-1.0])
    ]
    [rollout] = rollouts_of(import_these(as_file(row)))
    call = rollout.trace(tokens=True)[2]
    assert (call.tokens, call.tokens_note) == (None, "counts_differ")


@pytest.mark.parametrize(
    ("logprobs", "note"),
    [
        ([math.nan, -1.0], "logprob_not_finite"),
        ([-1.0, -math.inf], "logprob_not_finite"),
        (["NaN", None], "logprob_not_finite"),
        ([-1.0, 0.5], "logprob_above_0"),
        ([-1.0, -9999.0], "logprob_placeholder"),
        ([-1.0, 1e-6], ""),
    ],
)
def test_a_turn_with_impossible_logprobs_is_imported_without_its_tokens(logprobs, note, tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    row = stored_row()
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": logprobs}
    row["response"]["output"] = [said("4", **tokens)]
    [rollout] = rollouts_of(import_these(as_file(json.dumps(row).encode())))
    call = rollout.trace(tokens=True)[2]
    assert (text_of(call.items[-1]), call.tokens_note, call.tokens is None) == ("4", note, bool(note))
    told = describe_rollout(rollout, rollout.graph(tokens=True))
    assert (len(told["segments"]), told["tokens_note"]) == (0 if note else 1, note)
    export = write_export(export=queue_export(ExportOrder(format="trl_sft_tokens", collection=rollout.collection)))
    left_out = {one["reason"]: one["count"] for one in export.manifest["trainability"]["left_out"]}
    assert left_out == ({"impossible_logprobs": 1} if note else {})


def test_a_constant_elsewhere_in_a_row_is_still_refused():
    row = stored_row()
    row["response"]["usage"] = {"output_tokens": math.nan}
    with pytest.raises(ImportRefused):
        import_these(as_file(json.dumps(row).encode()))


@pytest.mark.parametrize(("count", "note"), [(3, "usage_differs"), (2, ""), (0, "")])
def test_the_tokens_of_a_single_turn_are_compared_with_the_usage(count, note, tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    row = stored_row()
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [10, 11], "generation_log_probs": [-0.5, -1.0]}
    row["response"] |= {"output": [said("R=1", **tokens)], "usage": {"input_tokens": 1, "output_tokens": count}}
    [rollout] = rollouts_of(import_these(as_file(row)))
    call = rollout.trace(tokens=True)[2]
    assert (call.tokens_note, call.tokens is None, call.usage["output_tokens"]) == (note, bool(note), count)
    export = write_export(export=queue_export(ExportOrder(format="trl_sft_tokens", collection=rollout.collection)))
    left_out = {one["reason"]: one["count"] for one in export.manifest["trainability"]["left_out"]}
    assert left_out == ({"token_counts_differ": 1} if note else {})


def test_how_the_attempt_ended_is_read_from_the_response():
    cut = stored_row("a")
    cut["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    stuck = stored_row("b")
    stuck["response"]["output"] = [{"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}]
    silent = stored_row("c")
    silent["response"]["output"] = [said("")]
    ours = stored_row("d", gymweb={"stop_reason": "time_limit"})
    foreign = stored_row("e", gymweb={"stop_reason": "tired"})
    imported = import_these(as_file(cut, stuck, silent, ours, foreign))
    wanted = ["max_output_tokens", "max_steps", "empty_reply", "time_limit", "answered"]
    assert [rollout.stop_reason for rollout in rollouts_of(imported)] == wanted


BAD_LINES = {
    b"{oops": "not JSON",
    b"[1]": "the line holds a list, not a JSON object",
    b'{"response": {"output": []}, "reward": 1}': "/responses_create_params is missing",
    b'{"responses_create_params": {"input": "x"}, "reward": 1}': "/response is missing",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": "no"}, "reward": 1}': "must be a list",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": [7]}, "reward": 1}': "/response/output/0",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": []}}': "/reward is missing",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "reward": true}': "number from -1e+100",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "reward": null}': "number from -1e+100",
    b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "reward": 1, "reward_components": []}': (
        "/reward_components must be an object"
    ),
    b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "reward": 1, "reward": 0}': (
        "the name 'reward' is repeated in one object"
    ),
    b'{"responses_create_params": {"input": "x"}, "reward": 1e400}': "a number that is not finite",
    b'{"responses_create_params": {"input": "x"}, "n": ' + b"[" * 300 + b"]" * 300 + b"}": "deeper than 100 levels",
}
INDEXES: list[Any] = [-1, 0.5, 2**63, True, "0"]


@pytest.mark.parametrize("name", ["_ng_task_index", "_ng_rollout_index"])
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", ["rollout", "input"])
def test_an_index_is_a_whole_number_from_0(name, index, kind):
    row = stored_row(**{"_ng_task_index": 0, "_ng_rollout_index": 0, name: index})
    if kind == "input":
        del row["response"], row["reward"]
    with pytest.raises(ImportRefused) as refused:
        import_these(as_file(row, stored_row("b")))
    [error] = refused.value.errors
    assert (error.line, error.code) == (1, "wrong_index")
    assert error.message.startswith(f"/{name} must be a whole number from 0 to ")


def test_a_number_used_twice_in_a_file_is_mended_and_an_identical_line_is_left_out():
    at = {"_ng_task_index": 3, "_ng_rollout_index": 1}
    rows = [stored_row(**at), stored_row(**{**at, "_ng_rollout_index": 2}), stored_row(reward=0.0, **at)]
    imported = import_these(as_file(*rows, rows[0]))
    assert (imported.refused, imported.renumbered, imported.repeated) == (0, 1, 1)
    assert sorted(rollout.reward for rollout in rollouts_of(imported)) == [0.0, 1.0, 1.0]


def test_rollouts_of_one_number_in_two_files_are_further_ones_and_told():
    at = {"_ng_task_index": 3, "_ng_rollout_index": 1}
    failure = {**stored_row(**at), "_ng_failure_class": "timeout"}
    del failure["response"], failure["reward"]
    files = [as_file(stored_row(**at), name="a.jsonl"), as_file(stored_row(**at), failure, name="b.jsonl")]
    imported = import_these(*files)
    assert (imported.collection.total, imported.renumbered, imported.superseded) == (2, 1, 1)
    assert [rollout.repeat for rollout in rollouts_of(imported)] == [1, 2]
    alone = import_these(as_file(stored_row(**at), stored_row(**{**at, "_ng_rollout_index": 2})))
    assert alone.renumbered == 0


def test_one_line_nested_too_deep_is_left_out_and_the_others_stay():
    deep = orjson.dumps(stored_row("b", note="HERE")).replace(b'"HERE"', b"[" * 300 + b"]" * 300)
    imported = import_these(as_file(stored_row(), deep), on_error="skip")
    assert [(error.line, error.code) for error in imported.errors] == [(2, "too_deep")]
    assert imported.collection.total == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_are_imported_as_what_they_hold(pack):
    plain = as_file(stored_row(), stored_row("b", reward=0.0))
    imported = import_these(File("rollouts.jsonl.packed", BytesIO(pack(plain.stream.read()))))
    assert [rollout.reward for rollout in rollouts_of(imported)] == [1.0, 0.0]


def test_a_packed_file_that_was_cut_off_is_refused_with_its_name():
    packed = gzip.compress(as_file(stored_row(), stored_row("b")).stream.read())
    with pytest.raises(ImportRefused, match="the gzip data is truncated") as refused:
        import_these(File("rollouts.jsonl.gz", BytesIO(packed[:-20])), on_error="skip")
    [error] = refused.value.errors
    assert (error.file, error.code, Collection.objects.count()) == ("rollouts.jsonl.gz", "cut_off", 0)


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_told_by_file_and_number_and_nothing_is_stored(line):
    dataset = make_dataset(rows=[])
    before = dataset.versions.count()
    with pytest.raises(ImportRefused) as refused:
        import_these(as_file(stored_row(), line), dataset=dataset)
    [error] = refused.value.errors
    assert (error.file, error.line) == ("rollouts.jsonl", 2)
    assert BAD_LINES[line] in error.message
    assert (Collection.objects.count(), Rollout.objects.count(), dataset.versions.count()) == (0, 0, before)


def test_good_lines_are_imported_where_bad_ones_may_be_skipped():
    imported = import_these(as_file(stored_row(), b"{oops", stored_row("b")), on_error="skip")
    assert (imported.collection.total, imported.refused, imported.errors[0].line) == (2, 1, 2)


def test_the_same_files_again_are_the_same_collection():
    dataset = make_dataset(rows=[])
    first = import_these(as_file(stored_row()), dataset=dataset)
    again = import_these(as_file(stored_row(), name="other.jsonl"), dataset=dataset)
    assert (first.created, again.created, again.collection.pk) == (True, False, first.collection.pk)
    assert (Rollout.objects.count(), TraceEvent.objects.count()) == (1, 4)


def test_the_same_files_with_another_model_agent_or_name_are_another_collection():
    dataset, agent, other_agent, model = make_dataset(rows=[]), make_agent(), make_agent(), make_policy_model()

    def imported(**options):
        files = [as_file(stored_row())]
        return import_rollouts(ImportOrder(dataset=dataset, **{"agent": agent, **options}), files=files)

    plain = imported()
    for options in ({"policy_model": model}, {"agent": other_agent}, {"name": "Second"}, {"format": "nemo_gym"}):
        first, again = imported(**options), imported(**options)
        collection = first.collection
        assert (first.created, again.created, again.collection.pk) == (True, False, collection.pk)
        assert collection.policy_model == options.get("policy_model", plain.collection.policy_model)
        assert collection.agent == options.get("agent", agent)
        assert collection.name == options.get("name", plain.collection.name)
    assert (imported().created, Collection.objects.count()) == (False, 5)


def test_an_import_that_died_half_way_is_swept_away_and_can_be_made_again(monkeypatch):
    dataset = make_dataset(rows=[])
    first = import_these(as_file(stored_row()), dataset=dataset)
    # As a process leaves it that is gone before its last chunk.
    quiet = timezone.now() - 2 * ABANDONED_AFTER
    Collection.objects.update(state=Collection.State.PLANNING, touched_at=quiet)
    with pytest.raises(ImportRefused, match="are already being imported as"):
        import_these(as_file(stored_row()), dataset=dataset)
    assert sweep_plans()
    assert (Collection.objects.count(), Rollout.objects.count(), TraceEvent.objects.count()) == (0, 0, 0)
    again = import_these(as_file(stored_row()), dataset=dataset)
    assert (again.created, again.collection.version) == (True, first.collection.version)


def test_a_database_that_fails_half_way_leaves_no_half_collection(monkeypatch):
    def fail(*arguments, **options):
        raise OperationalError("the disk is full")

    monkeypatch.setattr(TraceEvent.objects, "bulk_create", fail)
    with pytest.raises(OperationalError):
        import_these(as_file(stored_row()))
    assert (Collection.objects.count(), Rollout.objects.count()) == (0, 0)


def test_other_rollouts_of_the_same_tasks_use_the_version_that_exists():
    dataset = make_dataset(rows=[])
    first = import_these(as_file(stored_row(answer="4")), dataset=dataset)
    second = import_these(as_file(stored_row(answer="5", reward=0.0)), dataset=dataset)
    assert second.collection.version == first.collection.version


def test_a_policy_model_is_made_that_is_named_as_in_the_rows():
    import_these(as_file(stored_row("a")))
    import_these(as_file(stored_row("b")))
    model = PolicyModel.objects.get(model_name="stored-model")
    assert (model.slug, model.base_url) == ("stored-model", "http://imported.invalid/v1")
    given = make_policy_model()
    assert import_these(as_file(stored_row("c")), policy_model=given).collection.policy_model == given


def test_a_credential_in_the_name_of_a_model_is_stored_nowhere():
    secret = "sk-proj-" + "AbCdEf0123456789" * 7
    # The name is cut to 100 characters, which must not leave the start of one.
    log = {
        "messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}],
        "reward": 1.0,
        "model": f"a model {secret}",
    }
    [rollout] = rollouts_of(import_these(as_file(log)))
    model = rollout.collection.policy_model
    named = "a model [REDACTED:api_key]"
    assert (model.name, model.model_name, rollout.model_version) == (named, named, named)
    assert model.slug == "a-model-redactedapi_key"
    stored = everything_stored().lower()
    assert [word for word in ("sk-proj-", "abcdef0123456789") if word in stored] == []


def test_an_exported_rollout_is_imported_unchanged(tmp_path):
    first = import_these(as_file(stored_row(), stored_row("What is 1 + 3?", "5", 0.0)))
    export = queue_export(ExportOrder(format="nemo_gym_rollouts", collection=first.collection))
    write_export(export=export, path=tmp_path / "out.jsonl")
    exported = (tmp_path / "out.jsonl").read_bytes().splitlines()
    again = import_these(as_file(*exported))
    for one, other in zip(rollouts_of(first), rollouts_of(again), strict=True):
        assert one.task.row == other.task.row
        assert (one.reward, one.stop_reason, one.repeat) == (other.reward, other.stop_reason, other.repeat)
        assert [type(event) for event in one.trace()] == [type(event) for event in other.trace()]


ODD_OUTPUTS = [
    [{"type": "message", "role": "assistant", "content": None}],
    [{"type": "message", "role": "assistant", "content": 5}],
    [{"type": "message", "role": "assistant", "content": [None, 3, {"type": "output_text"}]}],
    [{"role": "assistant", "content": "bare"}],
    [{"type": "function_call"}],
    [{"type": "function_call", "call_id": 7, "name": None, "arguments": {"a": 1}}],
    [{"type": "function_call_output", "call_id": "nobody", "output": [{"type": "input_text", "text": "x"}]}],
    [{"type": "reasoning"}],
    [{"type": "web_search_call", "action": {}}],
    [{"type": "message", "role": "user", "content": "only the environment spoke"}],
    [said("zero \x00 byte and \u2028 line")],
    [said("x", prompt_token_ids="1", generation_token_ids=[1], generation_log_probs=[0.0])],
    [said("x", prompt_token_ids=[-1], generation_token_ids=[2**40], generation_log_probs=["a"])],
    [],
]


@pytest.mark.parametrize("output", ODD_OUTPUTS)
def test_odd_output_is_kept_and_shown(output, client):
    row = stored_row(reward_components={"a\x00b": 1}, info="y" * 100_000, gymweb={"stop_reason": "a\x00b"})
    row["response"] |= {"output": output, "usage": {"input_tokens": "many", "output_tokens": -1}, "model": "m\x00"}
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert (rollout.reward, rollout.components, rollout.input_tokens) == (1.0, {"a\ufffdb": 1.0}, 0)
    assert rollout.trace()[-1].details["info"] == "left out: 100,002 bytes"
    client.force_login(make_user())
    assert client.get(f"/rollouts/{rollout.pk}/").status_code == 200


def test_what_holds_a_zero_byte_is_verified_again_too():
    [rollout] = rollouts_of(import_these(as_file(stored_row(answer="\\boxed{4\x00}", reward=1.0))))
    done = finish_reverification(
        reverification=queue_reverification(ReverificationOrder(collection=rollout.collection))
    )
    done = finish_reverification(reverification=apply_reverification(reverification=done))
    rollout.refresh_from_db()
    assert (done.state, done.applied, rollout.reward) == ("applied", 1, 0.0)
    assert rollout.trace()[-1].details["extracted_answer"] == "4\x00"
