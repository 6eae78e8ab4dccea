"""Masked rollouts: kept and shown, but in no metric, pair or training row. The rewards are those of NeMo Gym 0.7."""

import json
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.environments.models import Adapter
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.exporters.registry import FORMATS
from apps.gym.pairs.pair_rule import Rule
from apps.gym.serving.aggregating import aggregate_metrics
from apps.gym.traces.events import Verification
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_counts import count_pairs
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.figure_blocks import count_marked_blocks
from apps.rollouts.metrics.task_profiles import profile_tasks
from apps.rollouts.metrics.trainable_rollouts import read_trainability
from apps.rollouts.models import FigureMark, Rollout
from apps.rollouts.search.filters.filter_sql import filter_rollouts
from apps.rollouts.steering.controls import resolve_flags
from apps.rollouts.steering.local_worker import finish_collection
from tests.dashboard.pages import signed_in
from tests.factories import (
    make_collection,
    make_dataset,
    make_environment,
    make_rollout,
    make_row,
    make_trace,
)
from tests.gym.resources.servers import Answers
from tests.rollouts.stored import as_file, stored_row
from tests.rollouts.test_importing import import_these, rollouts_of
from tests.rollouts.test_server_metrics import served
from tests.rollouts.work import plan

pytestmark = pytest.mark.django_db
GOLDEN = json.loads((Path(__file__).parents[1] / "nemo_gym" / "golden" / "masked_metrics.json").read_text())
MASK = {"reward": 0.0, "mask_sample": True, "failure_kind": "provider_oom_killed", "failure_reason": "137"}
KEEPING = [slug for slug, one in FORMATS.items() if one.keeps_masked]
TRAINING = [
    slug for slug, one in FORMATS.items() if not one.keeps_masked and one.row_kind not in ("tasks", "preferences")
]


def masked_trace(answer="4", reward=0.0):
    *events, verified = make_trace(answer, reward)
    details = {name: value for name, value in MASK.items() if name != "reward"}
    return [*events, Verification(reward=verified.reward, details=details, stop_reason="answered")]


def masked_rollout(collection, **fields):
    fields = {"reward": None, "masked": "provider_oom_killed", "trace": masked_trace(), **fields}
    return make_rollout(collection, **fields)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=range(len(GOLDEN["cases"])))
def test_metrics_of_masked_rows_equal_those_of_nemo_gym(case):
    theirs = case["aggregate"]
    ours = aggregate_metrics({"verify_responses": case["rows"]})
    whole = {name: theirs["agent_metrics"][name] for name in ours["agent_metrics"]}
    assert ours["agent_metrics"] == pytest.approx(whole, abs=1e-9)
    assert ours["key_metrics"] == pytest.approx({name: theirs["key_metrics"][name] for name in ours["key_metrics"]})
    assert [group["_ng_task_index"] for group in ours["group_level_metrics"]] == [
        group["_ng_task_index"] for group in theirs["group_level_metrics"]
    ]

    rows = [{**stored_row(f"task {row['_ng_task_index']}"), **row} for row in case["rows"]]
    collection = import_these(as_file(*rows)).collection
    collection.refresh_from_db()
    figures = measure_collection(collection)
    found = {
        "mean/reward": figures.mean_reward,
        "max/reward": figures.max_reward,
        "min/reward": figures.min_reward,
        "median/reward": figures.median,
        # Of a single reward, NeMo Gym's is 0.
        "std/reward": figures.std or 0.0,
    }
    rewards = {name: value for name, value in whole.items() if name.endswith("/reward")}
    assert {name: found[name] for name in rewards} == pytest.approx(rewards, abs=1e-9)
    assert bool(rewards) == (figures.mean_reward is not None)
    masked = sum(bool(row.get("mask_sample")) for row in case["rows"])
    assert (figures.masked, figures.rewarded, collection.rewarded) == (
        masked,
        len(rows) - masked,
        len(rows) - masked,
    )
    measured = [profile for profile in profile_tasks(collection) if profile.rewarded]
    for profile, task in zip(measured, theirs["group_level_metrics"], strict=True):
        assert (profile.rewarded, profile.mean_reward) == (
            task["num_rollouts"],
            pytest.approx(task["mean/reward"], abs=1e-9),
        )


@pytest.mark.usefixtures("migrated")
def test_a_masked_reply_of_verify_gives_no_reward_and_keeps_what_the_server_said(settings):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    settings.WORKER_GRACE_SECONDS = 5
    verdicts = [MASK, {"reward": 1.0}, {"reward": 0.0, "instance_config": {"mask_sample": True}}, {"reward": 0.5}]
    answers = Answers(seed_session={}, verify=verdicts)
    with served(answers) as url:
        environment = make_environment(adapter=Adapter.HTTP, builtin="", base_url=url)
        rows = [make_row(f"question {n}", "4") for n in range(4)]
        collection = plan(rows, environment=environment.slug, repeats=1, concurrency=1)
        async_to_sync(finish_collection)(collection, progress=lambda *_: None)
    collection.refresh_from_db()
    found = sorted(collection.rollouts.values_list("status", "reward", "masked"), key=str)
    assert found == [
        ("completed", 0.5, ""),
        ("completed", 1.0, ""),
        ("completed", None, "masked"),
        ("completed", None, "provider_oom_killed"),
    ]
    assert (collection.completed, collection.rewarded, collection.reward_sum) == (4, 2, 1.5)
    masked = collection.rollouts.get(masked="provider_oom_killed")
    assert masked.trace()[-1].reward == 0.0
    assert masked.trace()[-1].details["failure_reason"] == "137"
    assert list(filter_rollouts(collection.rollouts.all(), "flag:masked").exclude(masked="masked")) == [masked]


def test_the_database_refuses_a_reward_of_a_masked_rollout():
    rollout = masked_rollout(make_collection())
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.filter(pk=rollout.pk).update(reward=0.0)
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.filter(pk=rollout.pk).update(status="failed", error_kind="timed_out", stop_reason="")


def test_no_pair_has_a_masked_side_even_by_verdict():
    collection = make_collection(state="completed", total=3)
    good = make_rollout(collection, trace=make_trace("4", 1.0))
    masked_rollout(collection, trace=masked_trace("5"))
    counts = count_pairs([collection], Rule(), seconds=None).counts
    assert (counts.pairs, counts.excluded) == (0, {"masked": 1})
    bad = make_rollout(collection, reward=0.0, trace=make_trace("6", 0.0))
    preview = count_pairs([collection], Rule(mode="all"), seconds=None, max_pairs=10)
    assert [(pair.chosen.id, pair.rejected.id) for pair in preview.pairs] == [(good.pk, bad.pk)]


def test_a_pair_whose_side_was_masked_later_is_not_exported(tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    task = collection.version.tasks.first()
    good, bad = make_rollout(collection, trace=make_trace("4", 1.0)), masked_rollout(collection)
    pair_set = PairSet.objects.create(collection=collection, state="ready", rule={}, pair_count=1)
    PreferencePair.objects.create(
        pair_set=pair_set, task=task, chosen=good, rejected=bad, chosen_reward=1.0, rejected_reward=0.0, margin=1.0
    )
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set)))
    assert (export.rows, export.manifest["counts"]["dropped"]) == (0, {"masked": 1})


@pytest.mark.parametrize("slug", TRAINING)
def test_no_training_format_has_a_row_of_a_masked_rollout(slug, tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    masked_rollout(collection)
    options = {"filters": {"include_truncated": True, "min_reward": None, "include_flagged": True}}
    export = write_export(export=queue_export(ExportOrder(format=slug, collection=collection, **options)))
    assert (export.rows, export.manifest["counts"]["dropped"]) == (0, {"masked": 1})
    [left_out] = export.manifest["trainability"]["left_out"]
    assert (left_out["reason"], left_out["count"], left_out["filter"]) == ("masked", 1, "flag:masked")


@pytest.mark.parametrize("slug", KEEPING)
def test_formats_of_nemo_gym_keep_masked_rollouts_as_theirs_do(slug, tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    masked_rollout(collection)
    export = write_export(export=queue_export(ExportOrder(format=slug, collection=collection)))
    assert export.rows == 1
    if slug == "nemo_gym_rollouts":
        [path] = Path(export.path).glob("*.jsonl")
        row = orjson.loads(path.read_bytes())
        assert {name: row[name] for name in MASK} == MASK
        # The only place that NeMo RL reads.
        assert row["instance_config"] == {"mask_sample": True}
        again = import_these(as_file(row))
        assert [(one.reward, one.masked) for one in rollouts_of(again)] == [(None, "provider_oom_killed")]


def test_only_nemo_gyms_formats_keep_masked_rollouts():
    assert KEEPING == ["nemo_gym_rollouts", "nemo_gym_inputs"]


def test_other_filters_apply_to_masked_rollouts_too(tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    order = ExportOrder(format="nemo_gym_rollouts", collection=collection, filters={"include_truncated": False})
    export = queue_export(order)
    masked_rollout(collection, flagged=True)
    masked_rollout(collection, stop_reason="max_steps")
    written = write_export(export=export)
    assert (written.rows, written.manifest["counts"]["dropped"]) == (0, {"flagged": 1, "truncated": 1})


def test_a_nested_mask_does_not_stay_in_the_task():
    config = {"mask_sample": True, "kept": 1}
    imported = import_these(as_file({**stored_row(), "instance_config": config}, stored_row()))
    first, second = rollouts_of(imported)
    assert [(one.reward, one.masked) for one in (first, second)] == [(None, "masked"), (1.0, "")]
    assert first.task.row["instance_config"] == {"kept": 1}


def test_the_ledger_follows_reviewed_redactions_in_cached_blocks():
    collection = make_collection(state="completed", total=2)
    for _ in range(2):
        make_rollout(collection, flagged=True)
    mark_changed((collection.pk, task) for task in collection.version.tasks.values_list("pk", flat=True))
    FigureMark.objects.update(marked_at=timezone.now() - timedelta(hours=1))
    assert count_marked_blocks()
    assert read_trainability(collection).used == 0
    resolve_flags(collection=collection)
    assert read_trainability(collection).used == 2


def test_a_ledger_without_traces_uses_nothing():
    collection = make_collection(state="completed", total=1, traces_deleted_at=timezone.now())
    make_rollout(collection, sampled_tokens=3, trainable_tokens=3)
    found = read_trainability(collection)
    assert (found.used, found.trainable_tokens) == (0, None)
    assert [one.reason for one in found.left_out] == ["no_trace"]


def test_an_imported_row_is_masked_even_if_its_task_has_the_same_field():
    row = {**stored_row(), **MASK}
    dataset = make_dataset([{**make_row("What is 2 + 2?", "4"), "mask_sample": True}])
    [rollout] = rollouts_of(import_these(as_file(row), dataset=dataset))
    assert (rollout.reward, rollout.masked) == (None, "provider_oom_killed")


def test_the_ledger_of_a_collection_counts_each_rollout_once():
    collection = make_collection(state="running", total=8)
    masked_rollout(collection, flagged=True)
    make_rollout(collection, sampled_tokens=5, trainable_tokens=3)
    make_rollout(collection, flagged=True, stop_reason="max_steps")
    make_rollout(collection, reward=None, stop_reason="max_steps")
    make_rollout(collection, reward=None)
    make_rollout(collection, stop_reason="max_steps", sampled_tokens=7, trainable_tokens=3)
    make_rollout(collection, status="failed", error_kind="timed_out", reward=None, stop_reason="", sampled_tokens=9)
    make_rollout(collection, status="queued", reward=None, stop_reason="", attempt=0, finished_at=None)
    found = read_trainability(collection)
    assert (found.considered, found.used, found.sampled_tokens, found.trainable_tokens) == (8, 1, 5, 3)
    counts = {one.reason: one.count for one in found.left_out}
    assert counts == {
        "truncated": 2,
        "masked": 1,
        "flagged": 1,
        "no_reward": 1,
        "failed": 1,
        "not_finished": 1,
        "grammar": 2,
    }
    for one in found.left_out:
        if one.filter:
            assert filter_rollouts(Rollout.objects.all(), one.filter).count() == one.count, one.reason


def test_the_page_and_the_rollout_say_that_it_is_masked():
    collection = make_collection(state="completed", total=1, completed=1)
    rollout = masked_rollout(collection)
    client = signed_in()
    page = client.get(f"/collections/{collection.pk}/").text
    assert 'id="masked"' in page
    assert "provider_oom_killed" in client.get(f"/rollouts/{rollout.pk}/").text
