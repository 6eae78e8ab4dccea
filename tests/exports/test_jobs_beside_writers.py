"""Every background job writes only while it reads nothing: on SQLite another connection commits before each write."""

import io
import json

import pytest

from apps.exports import export_jobs
from apps.exports.export_jobs import write_queued_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.pairs import trace_reader
from apps.pairs.pair_set_jobs import make_queued_pair_set
from apps.pairs.pair_sets import PairOrder, queue_pair_set
from apps.rollouts.models import Collection, RolloutWords
from apps.rollouts.plans import planning, task_selection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.reverification.reverification_jobs import continue_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from apps.rollouts.steering.collection_deletion import delete_next_collection, queue_collection_deletion
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from tests.concurrent_writes import commits_before_each_write
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_trace

ROLLOUTS = 100


@pytest.fixture
def collection(migrated, settings, monkeypatch, tmp_path):
    """Its rows are several pages of everything that reads them."""
    monkeypatch.setattr(trace_reader, "ROWS", 50)
    monkeypatch.setattr(task_selection, "CHUNK", 4)
    settings.EXPORTS_DIR = tmp_path / "exports"
    made = make_collection(dataset=make_dataset([make_row(str(number)) for number in range(10)]), state="completed")
    tasks = list(made.version.tasks.order_by("index"))
    for number in range(ROLLOUTS):
        reward = float(number % 2)
        make_rollout(made, task=tasks[number // 10], reward=reward, trace=make_trace(str(number), reward))
    Collection.objects.filter(pk=made.pk).update(total=ROLLOUTS, completed=ROLLOUTS, repeats=10)
    made.refresh_from_db()
    return made


@pytest.mark.parametrize("format", ["trl_sft", "nemo_gym_rollouts", "nemo_gym_inputs", "trl_dpo"])
def test_an_export_reports_progress_after_every_rollout(collection, monkeypatch, format):
    monkeypatch.setattr(export_jobs, "HEARTBEAT_SECONDS", 0.0)
    pair_set = None
    if format == "trl_dpo":
        pair_set = queue_pair_set(PairOrder(collection=collection))
        make_queued_pair_set()
        pair_set.refresh_from_db()
    export = queue_export(ExportOrder(format=format, collection=collection, pair_set=pair_set))
    with commits_before_each_write() as preceded:
        assert write_queued_export()
    export.refresh_from_db()
    assert (export.state, export.message) == (Export.State.READY, "")
    assert export.rows > 0
    assert len(preceded) > 10


def test_pairs_are_made(collection):
    pair_set = queue_pair_set(PairOrder(collection=collection))
    with commits_before_each_write():
        assert make_queued_pair_set()
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.pair_count > 0) == ("ready", True)


def test_words_are_indexed(collection):
    mark_unindexed(collection.rollouts.all())
    with commits_before_each_write():
        while index_next_rollouts():
            pass
    assert RolloutWords.objects.values("rollout").distinct().count() == ROLLOUTS


def test_rollouts_are_verified_again(collection):
    reverification = queue_reverification(ReverificationOrder(collection=collection))
    with commits_before_each_write():
        while continue_reverification():
            pass
    reverification.refresh_from_db()
    assert (reverification.state, reverification.done) == ("ready", ROLLOUTS)


def test_a_collection_is_planned_from_an_earlier_one(collection, monkeypatch):
    monkeypatch.setattr(planning, "CHUNK", 3)
    failed = {"status": "failed", "reward": None, "error_kind": "policy_error", "stop_reason": ""}
    collection.rollouts.filter(repeat=0).update(**failed)
    with commits_before_each_write():
        again = plan_collection(
            Plan(
                dataset=collection.dataset,
                agent=collection.agent,
                policy_model=collection.policy_model,
                repeats=10,
                resume_from=collection,
            )
        )
    assert again.total == 10


def test_a_collection_and_its_dataset_are_deleted(collection):
    dataset = collection.dataset
    deletion = queue_collection_deletion(collection=collection)
    with commits_before_each_write():
        assert delete_next_collection()
    deletion.refresh_from_db()
    assert deletion.state == "done"
    deletion = queue_deletion(dataset=dataset)
    with commits_before_each_write():
        assert delete_next()
    deletion.refresh_from_db()
    assert deletion.state == "done"


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_file_is_loaded_over_an_earlier_version(migrated, settings, tmp_path, mode):
    settings.UPLOADS_DIR = settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    dataset = make_dataset([])
    dataset.versions.all().delete()
    for change in ("", "again"):
        rows = [make_row(f"{number} {change}" * (number % 3), id=str(number)) for number in range(300)]
        stream = io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        with commits_before_each_write():
            upload = upload_file(dataset=dataset, stream=stream, filename="rows.jsonl", choices=Choices(mode=mode))
        assert (upload.state, upload.accepted) == ("ready", 300)
    assert upload.counts["updated"] == 200
