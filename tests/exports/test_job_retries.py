"""A background job that a transient database error interrupts goes back to its queue, waits, and is done later."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.db import OperationalError, connection
from django.urls import reverse
from django.utils import timezone

from apps.accounts import job_retries
from apps.exports.export_jobs import write_export, write_queued_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.gym import process_exit
from apps.pairs.pair_set_jobs import make_queued_pair_set
from apps.pairs.pair_sets import PairOrder, build_pairs, queue_pair_set
from apps.rollouts.metrics.cached_figures import measure_wanted
from apps.rollouts.models import Collection, KeptFigures, UnindexedRollout
from apps.rollouts.reverification.reverification_jobs import (
    apply_reverification,
    continue_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from apps.rollouts.steering.collection_deletion import delete_next_collection, queue_collection_deletion
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.received_files import create_upload, parts_file
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import load_now, load_queued_upload
from tests.factories import make_collection, make_dataset, make_rollout, make_trace, make_user, make_worker


class Job(NamedTuple):
    """`breaks_at` is a part of a statement that only its work executes; `page` shows the job."""

    row: Any
    work: Callable[[], bool]
    breaks_at: str
    done: str
    page: str = ""
    waits_as: str = "queued"


@contextlib.contextmanager
def database_fails(at: str, times: int = 1) -> Iterator[list[str]]:
    """Statements that contain `at` fail so often, as on a locked database or a lost connection."""
    failed: list[str] = []

    def execute(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if at in sql and len(failed) < times:
            failed.append(sql)
            raise OperationalError("database is locked")
        return run(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield failed


@pytest.fixture(autouse=True)
def folders(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"
    settings.UPLOADS_DIR = settings.FILE_UPLOAD_TEMP_DIR = tmp_path / "uploads"
    settings.UPLOADS_DIR.mkdir()


@pytest.fixture
def collection(migrated):
    made = make_collection(state="completed")
    for reward in (1.0, 0.0):
        make_rollout(made, reward=reward, trace=make_trace(str(reward), reward))
    Collection.objects.filter(pk=made.pk).update(total=2, completed=2, rewarded=2, reward_sum=1.0)
    made.refresh_from_db()
    return made


def export_job(collection) -> Job:
    row = queue_export(ExportOrder(format="trl_sft", collection=collection))
    return Job(row, write_queued_export, '"rollouts_traceevent"', "ready", "dashboard:export_detail")


def pair_set_job(collection) -> Job:
    row = queue_pair_set(PairOrder(collection=collection))
    return Job(row, make_queued_pair_set, '"rollouts_traceevent"', "ready", "dashboard:pair_set_detail")


def upload_job(collection) -> Job:
    content = b'{"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4"}\n'
    upload = create_upload(dataset=collection.dataset, filename="a.jsonl", choices=Choices(), user=None, state="queued")
    parts_file(upload).write_bytes(content)
    return Job(upload, load_queued_upload, 'INSERT INTO "tasks_task"', "ready", "dashboard:upload_detail")


def dataset_deletion_job(collection) -> Job:
    row = queue_deletion(dataset=make_dataset())
    return Job(row, delete_next, 'DELETE FROM "tasks_task"', "done", "dashboard:deletion_detail")


def collection_deletion_job(collection) -> Job:
    row = queue_collection_deletion(collection=collection)
    page = "dashboard:collection_deletion_detail"
    return Job(row, delete_next_collection, 'DELETE FROM "rollouts_rollout"', "done", page)


def rollout_deletion_job(collection) -> Job:
    row = queue_rollout_deletion(collection=collection, chosen={"max_reward": 0.5})
    page = "dashboard:collection_deletion_detail"
    return Job(row, delete_next_collection, 'DELETE FROM "rollouts_rollout"', "done", page)


def reverification_job(collection) -> Job:
    row = queue_reverification(ReverificationOrder(collection=collection))
    page = "dashboard:reverification_detail"
    return Job(row, continue_reverification, 'INSERT INTO "rollouts_reverifiedreward"', "ready", page)


def application_job(collection) -> Job:
    row = queue_reverification(ReverificationOrder(collection=collection))
    continue_reverification()
    row.rewards.update(changed=True, fate="", new_reward=0.5, new_components={})
    apply_reverification(reverification=row)
    page = "dashboard:reverification_detail"
    return Job(row, continue_reverification, 'UPDATE "rollouts_rollout"', "applied", page, "applying")


JOBS = [
    export_job,
    pair_set_job,
    upload_job,
    dataset_deletion_job,
    collection_deletion_job,
    rollout_deletion_job,
    reverification_job,
    application_job,
]


def make_due(job: Job) -> None:
    type(job.row).objects.filter(pk=job.row.pk).update(retry_at=timezone.now() - timedelta(seconds=1))


@pytest.mark.parametrize("make", JOBS)
def test_a_job_is_put_back_waits_and_is_done_later(collection, client, make, settings, monkeypatch):
    monkeypatch.setattr(job_retries, "FIRST_WAIT", timedelta(seconds=50))
    make_worker()
    job = make(collection)
    with database_fails(job.breaks_at) as failed:
        assert job.work()
    assert len(failed) == 1
    job.row.refresh_from_db()
    assert (job.row.state, getattr(job.row, "attempt", 0)) == (job.waits_as, 0)
    assert "database is locked" in job.row.message
    assert job.row.retry_at > timezone.now()
    client.force_login(make_user("admin"))
    assert "database is locked" in client.get(reverse(job.page, args=[job.row.pk])).text
    assert not job.work(), "it is not due"
    if settings.EXPORTS_DIR.exists():
        assert list(settings.EXPORTS_DIR.iterdir()) == []
    make_due(job)
    while job.work():
        pass
    job.row.refresh_from_db()
    assert (job.row.state, job.row.message, job.row.retry_at) == (job.done, "", None)


@pytest.mark.parametrize("make", JOBS)
def test_a_job_fails_after_an_hour_of_errors(collection, make):
    job = make(collection)
    type(job.row).objects.filter(pk=job.row.pk).update(
        failing_since=timezone.now() - timedelta(minutes=61), retry_at=timezone.now()
    )
    with database_fails(job.breaks_at):
        assert job.work()
    job.row.refresh_from_db()
    assert job.row.state == "failed"
    assert job.row.message


def test_waits_grow_from_seconds_to_a_minute(collection):
    job, waits = export_job(collection), []
    for minutes in (0, 0.5, 30):
        since = timezone.now() - timedelta(minutes=minutes)
        Export.objects.filter(pk=job.row.pk).update(failing_since=since, retry_at=timezone.now())
        with database_fails(job.breaks_at):
            assert job.work()
        job.row.refresh_from_db()
        waits.append(round((job.row.retry_at - timezone.now()).total_seconds()))
    assert waits == [2, pytest.approx(30, abs=3), 60]


def test_a_job_that_was_queued_anew_has_its_hour_again(collection):
    job = export_job(collection)
    Export.objects.filter(pk=job.row.pk).update(failing_since=timezone.now() - timedelta(hours=2))
    with database_fails(job.breaks_at):
        assert job.work()
    job.row.refresh_from_db()
    assert job.row.state == "queued"


def test_progress_gives_a_deletion_its_hour_again(collection, monkeypatch):
    monkeypatch.setattr("apps.rollouts.steering.deletion_steps.CHUNK", 1)
    job = collection_deletion_job(collection)
    long_ago = timezone.now() - timedelta(hours=2)
    type(job.row).objects.filter(pk=job.row.pk).update(failing_since=long_ago, retry_at=timezone.now())
    with database_fails('DELETE FROM "rollouts_collection"'):
        assert job.work()
    job.row.refresh_from_db()
    assert (job.row.state, job.row.deleted) == ("queued", 2)


def test_a_worker_waits_for_a_database_that_is_away(collection, monkeypatch):
    monkeypatch.setattr(job_retries, "DATABASE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(process_exit, "_here", threading.local())
    process_exit.obey(threading.Event())
    job = export_job(collection)
    asks = 'SELECT "exports_export"."failing_since"'
    with database_fails(job.breaks_at), database_fails(asks, times=5) as failed:
        assert job.work()
    job.row.refresh_from_db()
    assert (len(failed), job.row.state) == (5, "queued")


def test_an_export_and_a_pair_set_made_here_and_now_are_repeated(collection, monkeypatch):
    monkeypatch.setattr(job_retries, "FIRST_WAIT", timedelta(milliseconds=10))
    with database_fails('"rollouts_traceevent"') as failed:
        assert build_pairs(PairOrder(collection=collection)).state == "ready"
    assert failed
    with database_fails('"rollouts_traceevent"') as failed:
        export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    assert (len(failed), export.state, export.rows) == (1, "ready", 1)


def test_a_file_loaded_on_request_is_left_to_a_worker(collection):
    job = upload_job(collection)
    with database_fails(job.breaks_at):
        assert load_now(upload=job.row).state == "queued"
    make_due(job)
    assert load_queued_upload()
    job.row.refresh_from_db()
    assert job.row.state == "ready"


def test_words_are_indexed_later_however_often_the_database_fails(collection):
    mark_unindexed(collection.rollouts.all())
    for _ in range(5):
        with database_fails("FROM rollouts_traceevent"), pytest.raises(OperationalError):
            index_next_rollouts()
    assert set(UnindexedRollout.objects.values_list("tries", "taken_at")) == {(0, None)}
    assert index_next_rollouts()
    assert not UnindexedRollout.objects.exists()


def test_words_that_a_leaving_worker_took_wait_for_the_next_one(collection, monkeypatch):
    mark_unindexed(collection.rollouts.all())

    def leave() -> None:
        raise process_exit.Leaving

    monkeypatch.setattr(process_exit, "check", leave)
    with pytest.raises(process_exit.Leaving):
        index_next_rollouts()
    assert set(UnindexedRollout.objects.values_list("tries", "taken_at")) == {(0, None)}


def test_figures_are_measured_later(collection):
    row = KeptFigures.objects.create(collection=collection, wanted_at=timezone.now())
    with database_fails('"rollouts_reverification"'), pytest.raises(OperationalError):
        measure_wanted()
    row.refresh_from_db()
    assert row.claimed_at is None
    assert measure_wanted()
