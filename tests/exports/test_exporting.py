"""Exports: whole files with true manifests, claimed by one writer, and failures that say why."""

import errno
import hashlib
import json
import threading
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.accounts.space_waits import RETRY_SECONDS
from apps.exports import export_jobs
from apps.exports.export_folders import default_path, manifest_path, rows_path
from apps.exports.export_jobs import write_export, write_queued_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.exports.models import Export
from apps.exports.row_files import JsonLinesFile
from apps.gym import process_exit
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import message
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.tasks.fenced_jobs import Attempt
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_trace, make_user
from tests.gym.traces import decode_lines, nulls, with_tokens

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"
    return settings.EXPORTS_DIR


def broken_trace():
    call = {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": "{oops"}
    prompt, *_ = [event for event in make_trace() if type(event).__name__ == "Prompt"]
    return [prompt, ModelCall(seen=1, items=[call]), ModelCall(seen=2, items=[message("assistant", "4")])]


@pytest.fixture
def collection():
    """Two tasks; a good, a bad and a cut rollout, a failed one, one without a reward, one with malformed arguments."""
    made = make_collection(dataset=make_dataset([make_row("a"), make_row("b")]))
    first, second = made.version.tasks.order_by("index")
    make_rollout(made, task=first, reward=1.0, trace=make_trace("4", 1.0), components={"correct": 1.0})
    make_rollout(made, task=first, reward=0.0, trace=make_trace("5", 0.0))
    make_rollout(made, task=first, reward=1.0, stop_reason="max_steps")
    make_rollout(made, task=second, reward=None, status="failed", error_kind="policy_error", stop_reason="")
    make_rollout(made, task=second, reward=None)
    make_rollout(made, task=second, reward=1.0, trace=broken_trace())
    return made


def read(export):
    return decode_lines(rows_path(export, "train.jsonl").read_bytes())


def test_demonstrations_are_the_good_rollouts_that_ended_by_themselves(collection):
    export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    assert export.state == Export.State.READY
    (row,) = read(export)
    best = collection.rollouts.order_by("id").first()
    assert set(row) == {
        "messages",
        "tools",
        "reward",
        "rollout_id",
        "collection_id",
        "dataset",
        "task_id",
        "task_index",
    }
    assert [one["role"] for one in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"expression": "2+2"}
    assert (row["reward"], row["rollout_id"], row["task_index"]) == (1.0, best.pk, 0)
    assert row["dataset"] == f"{collection.dataset.slug}@v1"
    assert nulls(row) == []
    assert export.manifest["counts"] == {
        "considered": 6,
        "written_from": 1,
        "written": 1,
        "dropped": {
            "malformed_arguments": 1,
            "below_min_reward": 1,
            "failed": 1,
            "no_reward": 1,
            "truncated": 1,
        },
    }


def test_scored_rollouts_are_all_that_have_a_reward(collection):
    export = write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection)))
    rows = read(export)
    assert [(row["_ng_task_index"], row["_ng_rollout_index"], row["reward"]) for row in rows] == [
        (0, 0, 1.0),
        (0, 1, 0.0),
        (0, 2, 1.0),
        (1, 2, 1.0),
    ]
    assert rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": collection.agent.slug}
    assert rows[0]["reward_components"] == {"correct": 1.0}
    assert rows[0]["expected_answer"] == "4"
    assert rows[2]["gymweb"]["stop_reason"] == "max_steps"
    assert export.manifest["counts"]["dropped"] == {"failed": 1, "no_reward": 1}


def test_preference_pairs_equal_the_pair_set(collection):
    pair_set = build_pairs(PairOrder(collection=collection))
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set)))
    (row,) = read(export)
    pair = pair_set.pairs.get()
    assert (row["chosen"][-1]["content"], row["rejected"][-1]["content"]) == ("4", "5")
    assert row["prompt"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert (row["pair_id"], row["chosen_rollout_id"], row["reward_margin"]) == (pair.pk, pair.chosen_id, 1.0)
    assert export.manifest["source"]["pair_set"] == {
        "id": pair_set.pk,
        "name": f"collection {collection.pk}",
        "version": 1,
        "collections": [collection.pk],
        "rule": pair_set.rule,
        "rule_digest": pair_set.rule_digest,
        "groups": pair_set.counts,
        "excluded": {"failed": 1, "no_reward": 1, "truncated": 1},
        "sources": {"reward": 1},
    }
    assert export.manifest["counts"]["pairs_by_source"] == {"reward": 1}


def test_a_pair_that_no_trainer_could_load_is_dropped_with_its_reason():
    made = make_collection()
    make_rollout(made, reward=1.0)
    make_rollout(made, reward=0.0, trace=[*make_trace()[:1], *broken_trace()])
    pair_set = build_pairs(PairOrder(collection=made))
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=made, pair_set=pair_set)))
    assert (pair_set.pair_count, export.rows) == (1, 0)
    assert export.manifest["counts"]["dropped"] == {"malformed_arguments": 1}


def test_the_manifest_is_true_of_the_file_and_lies_beside_it(collection):
    export = write_export(
        export=queue_export(ExportOrder(format="trl_sft", collection=collection, filters={"min_reward": 0.0}))
    )
    path = Path(export.path)
    assert path == default_path(export)
    assert sorted(one.name for one in path.iterdir()) == ["README.md", "manifest.json", "train.jsonl"]
    content = (path / "train.jsonl").read_bytes()
    manifest = json.loads(manifest_path(path).read_bytes())
    assert manifest == export.manifest
    assert manifest["sha256"] == export.sha256 == hashlib.sha256(content).hexdigest()
    assert manifest["bytes"] == export.bytes == len(content)
    assert manifest["rows"] == export.rows == content.count(b"\n") == 2
    assert manifest["longest_row_bytes"] == max(len(line) for line in content.splitlines(keepends=True))
    assert [manifest[name] for name in ("format", "encoding", "filters")] == [
        "trl_sft",
        "jsonl",
        {"min_reward": 0.0, "dedupe": True, "reward_from": "override"},
    ]
    [file] = manifest["files"]
    assert file == {
        "name": "train.jsonl",
        "split": "train",
        **{name: manifest[name] for name in ("rows", "bytes", "sha256", "longest_row_bytes")},
    }
    assert manifest["source"]["collection"] == {"id": collection.pk, "name": collection.name, "state": "running"}
    assert manifest["source"]["policy_model"]["slug"] == collection.policy_model.slug
    counts = manifest["counts"]
    assert counts["considered"] == counts["written_from"] + sum(counts["dropped"].values())


def test_the_source_is_as_planned_whatever_was_edited_since(collection):
    collection.snapshot = {"agent": {"slug": "a", "max_steps": 3}, "policy_model": {"model_name": "then"}}
    collection.save()
    collection.policy_model.model_name = "now"
    collection.policy_model.save()
    source = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection))).manifest["source"]
    assert source["agent"] == {"slug": "a", "max_steps": 3}
    assert source["policy_model"]["model_name"] == "then"


@pytest.mark.parametrize(
    ("format", "filters", "kept"),
    [
        ("trl_sft", None, {"min_reward": 0.7, "dedupe": True, "reward_from": "override"}),
        ("trl_sft", {"min_reward": None}, {"dedupe": True, "reward_from": "override"}),
        ("trl_sft", {"min_reward": 0.2, "dedupe": False}, {"min_reward": 0.2, "reward_from": "override"}),
        (
            "nemo_gym_rollouts",
            {"reward_from": "verifier"},
            {"include_truncated": True, "include_noticed": True, "reward_from": "verifier"},
        ),
    ],
)
def test_the_export_keeps_the_filters_that_were_applied(collection, format, filters, kept):
    assert queue_export(ExportOrder(format=format, collection=collection, filters=filters or {})).filters == kept


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"format": "csv"}, "Unknown format csv"),
        ({"format": "trl_dpo"}, "needs a pair set"),
        ({"format": "trl_sft", "filters": {"min_rewrd": 1}}, "no filter min_rewrd"),
        ({"format": "trl_sft", "filters": {"min_reward": "1"}}, "min_reward: Expected `float"),
        ({"format": "trl_sft", "filters": {"min_reward": True}}, "min_reward: Expected `float"),
        ({"format": "trl_sft", "filters": {"min_reward": float("nan")}}, "finite number"),
    ],
)
def test_an_export_without_rows_is_refused(collection, fields, why):
    with pytest.raises(ExportRefused, match=why):
        queue_export(ExportOrder(collection=collection, **fields))
    assert not Export.objects.exists()


def test_pairs_belong_to_a_dpo_export_of_their_own_collection(collection):
    pair_set = build_pairs(PairOrder(collection=make_collection()))
    for format in ("trl_dpo", "trl_sft"):
        with pytest.raises(ExportRefused):
            queue_export(ExportOrder(format=format, collection=collection, pair_set=pair_set))


def test_who_asked_for_an_export_is_in_the_audit_log(collection):
    user = make_user()
    export = queue_export(ExportOrder(format="trl_sft", collection=collection), user=user)
    assert export.created_by == user
    assert AuditEntry.objects.filter(user=user, action="export.create", target=str(export)).count() == 1


def test_a_worker_writes_queued_exports_oldest_first(collection):
    first, second = (queue_export(ExportOrder(format="trl_sft", collection=collection)) for _ in range(2))
    assert write_queued_export() is True
    assert [Export.objects.get(pk=one.pk).state for one in (first, second)] == ["ready", "queued"]
    assert write_queued_export() is True
    assert write_queued_export() is False
    assert not list(default_path(first).parent.glob(".*"))


def test_an_export_whose_writer_went_quiet_is_written_by_another(collection):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    long_ago = timezone.now() - timedelta(minutes=6)
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=1, touched_at=long_ago)
    assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt) == ("ready", 2)


def test_an_export_that_is_being_written_is_left_alone(collection):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=1, touched_at=timezone.now())
    assert write_queued_export() is False


def test_an_export_that_lost_three_writers_is_failed_and_says_so(collection):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    long_ago = timezone.now() - timedelta(minutes=6)
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=3, touched_at=long_ago)
    assert write_queued_export() is False
    export.refresh_from_db()
    assert (export.state, "lost 3 times" in export.message) == ("failed", True)


def late_attempt(export):
    return Attempt(Export, export.pk, 1, "writing", "queued")


def test_a_writer_given_up_for_lost_changes_neither_row_nor_file(collection, tmp_path):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=2)
    export_jobs._write(late_attempt(export), tmp_path / "late.jsonl")
    export.refresh_from_db()
    assert (export.state, export.attempt, export.sha256) == ("writing", 2, "")
    assert list(tmp_path.glob("*late*")) == []


@pytest.fixture
def asked_to_leave():
    event = threading.Event()
    process_exit.obey(event)
    yield event
    process_exit.obey(threading.Event())


def test_a_worker_that_leaves_puts_its_export_back(collection, asked_to_leave, caplog):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    asked_to_leave.set()
    with caplog.at_level("INFO"):
        assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt, export.message) == ("queued", 0, "")
    assert [record.message for record in caplog.records] == [f"export {export.pk} is left to another worker"]
    assert list(default_path(export).parent.iterdir()) == []
    asked_to_leave.clear()
    assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt) == ("ready", 1)


def test_a_worker_that_leaves_takes_nothing_back_that_another_has_taken_over(collection, asked_to_leave):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=2)
    asked_to_leave.set()
    export_jobs._write(late_attempt(export), None)
    export.refresh_from_db()
    assert (export.state, export.attempt) == ("writing", 2)


def test_an_export_waits_while_the_disk_is_full_and_is_written_when_there_is_space(collection, full_disk):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt) == ("queued", 0)
    assert export.message.startswith("Waiting for disk space")
    assert list(default_path(export).parent.iterdir()) == []
    assert write_queued_export() is False
    full_disk.free()
    assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt, export.message) == ("ready", 1, "")


def test_a_file_that_the_disk_refuses_is_written_later(collection, monkeypatch):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))

    def refuse(self, rows, encoded):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesFile, "write", refuse)
        assert write_queued_export() is True
    export.refresh_from_db()
    assert (export.state, export.attempt) == ("queued", 0)
    assert list(default_path(export).parent.iterdir()) == []
    assert write_queued_export() is False
    later = time.monotonic() + RETRY_SECONDS
    monkeypatch.setattr("apps.accounts.space_waits.time.monotonic", lambda: later)
    assert write_queued_export() is True
    export.refresh_from_db()
    assert export.state == "ready"


def test_writing_now_takes_the_export_over(collection, tmp_path):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    Export.objects.filter(pk=export.pk).update(state="writing", attempt=1)
    written = write_export(export=export, path=tmp_path / "mine" / "sft.jsonl")
    assert (written.state, written.attempt, written.path) == ("ready", 2, str(tmp_path / "mine" / "sft.jsonl"))
    assert sorted(one.name for one in (tmp_path / "mine").iterdir()) == ["sft.jsonl", "sft.jsonl.manifest.json"]


def test_a_failed_export_says_why_and_leaves_no_file(collection, tmp_path):
    (tmp_path / "taken").write_text("a file where a folder should be")
    export = write_export(
        export=queue_export(ExportOrder(format="trl_sft", collection=collection)), path=tmp_path / "taken" / "sft.jsonl"
    )
    assert export.state == Export.State.FAILED
    assert export.message.startswith(("NotADirectoryError", "FileExistsError"))


def test_a_failure_midway_keeps_the_earlier_file(collection, tmp_path):
    export = write_export(
        export=queue_export(ExportOrder(format="trl_sft", collection=collection)), path=tmp_path / "a.jsonl"
    )
    before = (tmp_path / "a.jsonl").read_bytes()
    best = collection.rollouts.order_by("id").first()
    best.events.filter(seq=2).update(payload="not an event")
    again = write_export(export=export, path=tmp_path / "a.jsonl")
    assert again.state == Export.State.FAILED
    assert "DecodeError" in again.message
    assert (tmp_path / "a.jsonl").read_bytes() == before
    assert list(tmp_path.glob(".*")) == []


def test_what_json_cannot_hold_is_dropped_not_failed():
    made = make_collection()
    huge = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"n": 123456789012345678901234567890}'}
    prompt = make_trace()[1]
    make_rollout(made, trace=[prompt, ModelCall(seen=1, items=[huge])])
    export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=made)))
    assert export.manifest["counts"]["dropped"] == {"not_encodable": 1}


def test_a_rollout_without_a_trace_is_dropped_not_failed():
    made = make_collection()
    make_rollout(made, trace=[])
    export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=made)))
    assert (export.rows, export.manifest["counts"]["dropped"]) == (0, {"no_trace": 1})
    assert not rows_path(export, "train.jsonl").exists()


def test_rollouts_beyond_one_chunk_are_all_written_in_few_queries(django_assert_max_num_queries, monkeypatch):
    monkeypatch.setattr("apps.exports.export_selection.TASKS", 20)
    made = make_collection(dataset=make_dataset([make_row(str(number)) for number in range(50)]))
    for task in made.version.tasks.all():
        make_rollout(made, task=task)
    queued = queue_export(ExportOrder(format="trl_sft", collection=made))
    with django_assert_max_num_queries(30):
        export = write_export(export=queued)
    assert export.rows == 50
    assert [row["rollout_id"] for row in read(export)] == sorted(row["rollout_id"] for row in read(export))


def test_an_export_shows_its_progress(monkeypatch):
    collection = make_collection(dataset=make_dataset([make_row(name) for name in "abcd"]))
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task)
    monkeypatch.setattr(export_jobs, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr("apps.exports.export_selection.TASKS", 1)
    seen: list[int] = []
    monkeypatch.setattr(export_jobs.process_exit, "check", lambda: seen.append(Export.objects.get().rows))
    export = write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection)))
    assert (seen[0], seen == sorted(seen), 0 < seen[-1] <= export.rows) == (0, True, True)


@pytest.mark.parametrize("fields", [{"encoding": "csv"}, {"state": "ready"}, {"validation_share": 0.7}])
def test_an_export_that_makes_no_sense_cannot_be_stored(collection, fields):
    with pytest.raises(IntegrityError), transaction.atomic():
        Export.objects.create(**{"format": "trl_sft", "collection": collection, **fields})


def test_the_manifest_of_scored_rollouts_counts_versions_and_how_tokens_join():
    collection = make_collection()
    whole, broken = ([1, 2], [3]), ([1, 2, 9], [4])
    for version, captured in [
        ("step-1", (whole, ([1, 2, 3, 4], [5]))),
        ("step-1", (whole, broken)),
        ("step-2", (None, whole)),
        ("", (None, None)),
    ]:
        make_rollout(collection, model_version=version, trace=with_tokens(make_trace(), *captured))
    export = write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection)))
    rows = read(export)
    assert [row["gymweb"].get("model_version") for row in rows] == ["step-1", "step-1", "step-2", None]
    assert [row["gymweb"].get("tokens", {}).get("segments") for row in rows] == [1, 2, 1, None]
    assert export.manifest["model_versions"] == {"step-1": 2, "step-2": 1}
    assert export.manifest["tokens"] == {
        "rows": 3,
        "one_segment": 2,
        "more_segments": 1,
        "every_call_captured": 2,
        "with_grammar_calls": 0,
    }


@pytest.mark.parametrize("format", ["nemo_gym_rollouts", "scored_rollouts"])
def test_the_manifest_counts_an_attempt_for_every_version_that_answered_in_it(format):
    made = make_collection(dataset=make_dataset([{**make_row("a"), "segments": 3, "sampled": "x", "calls": []}]))
    versions = iter(["step-1", "step-2"])
    trace = [
        msgspec.structs.replace(event, version=next(versions), grammar=True) if isinstance(event, ModelCall) else event
        for event in with_tokens(make_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5]))
    ]
    make_rollout(made, model_version="step-1", trace=trace)
    make_rollout(made, model_version="step-1")
    order = ExportOrder(format=format, collection=made, encoding="jsonl", options={"grammar_calls": "keep"})
    export = write_export(export=queue_export(order))
    assert export.manifest["model_versions"] == {"step-1": 2, "step-2": 1}
    assert export.manifest["tokens"] == {
        "rows": 1,
        "one_segment": 1,
        "more_segments": 0,
        "every_call_captured": 1,
        "with_grammar_calls": 1,
    }


def test_an_export_without_a_token_to_train_on_counts_its_rollouts_as_dropped():
    made = make_collection()
    trace = with_tokens(make_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5]))
    constrained = [
        msgspec.structs.replace(event, grammar=True) if isinstance(event, ModelCall) else event for event in trace
    ]
    make_rollout(made, trace=constrained)
    kept = make_rollout(made, trace=trace)
    made.snapshot["policy_model"] = {"logprob_mode": "raw_logprobs"}
    made.save()
    order = ExportOrder(format="trl_sft_tokens", collection=made, encoding="jsonl", filters={"dedupe": False})
    export = write_export(export=queue_export(order))
    [row] = read(export)
    assert (row["rollout_id"], row["logprob_mode"]) == (kept.pk, "raw_logprobs")
    assert export.manifest["counts"]["dropped"] == {"all_tokens_masked": 1}


def test_a_field_of_a_task_may_be_called_as_what_the_manifest_counts():
    made = make_collection(dataset=make_dataset([{**make_row("a"), "segments": 3, "gymweb": "mine"}]))
    make_rollout(made)
    export = write_export(export=queue_export(ExportOrder(format="nemo_rl_tasks", collection=made)))
    assert (export.state, export.rows) == ("ready", 1)


def test_a_manifest_says_nothing_of_versions_and_tokens_that_there_are_not(collection):
    export = write_export(export=queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection)))
    assert not {"model_versions", "tokens"} & set(export.manifest)


def test_attempts_without_a_trace_are_no_repetitions_of_each_other():
    made = make_collection()
    for _ in range(3):
        make_rollout(made, trace=[])
    export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=made)))
    assert export.manifest["counts"]["dropped"] == {"no_trace": 3}
