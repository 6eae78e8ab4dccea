"""Files for one dataset are loaded one after the other, wherever they are loaded: no row of an upsert is lost."""

import io
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from django.db import connection

from apps.tasks import version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.models import Dataset, DatasetVersion, Task, Upload
from apps.tasks.received_files import store_file
from apps.tasks.task_marks import mark_tasks
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_cleanup import sweep_uploads
from apps.tasks.upload_jobs import load_now, load_queued_upload, upload_file
from apps.tasks.upload_turns import DatasetIsBusy
from tests.deadlines import DEADLINE
from tests.factories import make_environment, make_row

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dataset():
    return create_dataset(slug="sums", name="Sums", environment=make_environment())


def lines(*keys: object, answer: str = "4") -> bytes:
    return b"".join(orjson.dumps(make_row(f"Question {key}", answer, id=key)) + b"\n" for key in keys)


def load(dataset: Dataset, *keys: object, mode: str = "upsert", **given) -> Upload:
    stream = io.BytesIO(lines(*keys))
    return upload_file(dataset=dataset, stream=stream, filename="a.jsonl", choices=Choices(mode=mode), **given)


def store(dataset: Dataset, *keys: object) -> Upload:
    stream, choices = io.BytesIO(lines(*keys)), Choices(mode="upsert")
    return store_file(dataset=dataset, stream=stream, filename="a.jsonl", choices=choices)


def ids(dataset: Dataset) -> set[str]:
    return set(dataset.latest_version().tasks.values_list("external_id", flat=True))


def database_url() -> str:
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    options = f"{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}"
    return f"postgresql://{options}/{given['NAME']}"


@pytest.mark.django_db(transaction=True)
def test_of_upserts_in_many_threads_and_by_workers_every_row_is_kept(dataset):
    load(dataset, "base")
    waiting = [store(dataset, f"w{n}").pk for n in range(3)]
    start = threading.Barrier(6)

    def request(n: int) -> str:
        try:
            start.wait()
            return load(Dataset.objects.get(pk=dataset.pk), f"c{n}").state
        finally:
            connection.close()

    def work() -> str:
        try:
            start.wait()
            while Upload.objects.filter(pk__in=waiting, state="queued").exists():
                load_queued_upload()
            return "ready"
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        ends = [pool.submit(request, n) for n in range(4)] + [pool.submit(work) for _ in range(2)]
        assert [end.result() for end in ends] == ["ready"] * 6
    assert ids(dataset) == {"base", "c0", "c1", "c2", "c3", "w0", "w1", "w2"}
    versions = list(dataset.versions.order_by("number"))
    assert [(one.number, one.state, one.task_count) for one in versions] == [(n, "ready", n) for n in range(1, 9)]
    assert [one.base for one in versions] == [None, *versions[:-1]]


@pytest.mark.django_db(transaction=True)
def test_of_upserts_in_many_processes_every_row_is_kept(dataset, tmp_path):
    load(dataset, *range(300))
    environment = {**os.environ, "GYMWEB_VAR": str(tmp_path), "GYMWEB_DATABASE_URL": database_url()}
    command = [sys.executable, "manage.py", "upload_tasks", "-", "--dataset", "sums", "--mode", "upsert"]
    given = {"cwd": ROOT, "env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, **given) for _ in range(3)]
    for n, process in enumerate(processes):
        process.stdin.write(lines(f"p{n}", n))
        process.stdin.close()
    assert [process.wait(DEADLINE) for process in processes] == [0, 0, 0]
    for process in processes:
        process.stdout.close()
    assert ids(dataset) == {*map(str, range(300)), "p0", "p1", "p2"}


class Held(io.BytesIO):
    """A file whose end comes when it is let go."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.is_read, self.may_end = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if not (block := super().read(size)):
            self.is_read.set()
            assert self.may_end.wait(60)
        return block


@pytest.mark.django_db(transaction=True)
def test_while_a_file_is_loading_others_wait_and_the_database_is_free(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 2)
    other = create_dataset(slug="other", name="Other", environment=dataset.environment)
    slow = Held(lines(*range(10)))

    def hold() -> str:
        try:
            return upload_file(dataset=dataset, stream=slow, filename="a.jsonl").state
        finally:
            connection.close()

    def follow() -> str:
        try:
            return load(Dataset.objects.get(pk=dataset.pk), "next").state
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(hold)
            assert slow.is_read.wait(60)
            second = pool.submit(follow)
            with pytest.raises(DatasetIsBusy, match="Another upload to sums is in progress"):
                load(dataset, "impatient", patience=0)
            assert Upload.objects.get(state="failed").message.startswith("Another upload to sums is in progress")
            waits = store(dataset, "queued")
            assert load_queued_upload() is False
            # Whoever is not of this dataset writes as ever.
            assert load(other, "free").state == "ready"
            with connection.cursor() as cursor:
                cursor.execute("UPDATE tasks_dataset SET description = 'written' WHERE slug = 'other'")
            assert (first.done(), second.done()) == (False, False)
        finally:
            slow.may_end.set()
        assert (first.result(60), second.result(60)) == ("ready", "ready")
    assert load_queued_upload() is True
    waits.refresh_from_db()
    assert (waits.state, waits.attempt) == ("ready", 1)
    assert ids(dataset) == {*map(str, range(10)), "next", "queued"}


@pytest.mark.django_db
def test_a_file_that_waits_for_its_dataset_holds_up_no_other(dataset):
    DatasetVersion.objects.create(dataset=dataset, number=1)
    Upload.objects.create(dataset=dataset, state="loading", version=dataset.versions.get())
    other = create_dataset(slug="other", name="Other", environment=dataset.environment)
    waits, goes = store(dataset, 1), store(other, 1)
    assert (load_queued_upload(), load_queued_upload()) == (True, False)
    assert list(Upload.objects.filter(pk__in=[waits.pk, goes.pk]).order_by("pk").values_list("state", flat=True)) == [
        "queued", "ready",
    ]  # fmt: skip


@pytest.mark.django_db
def test_a_request_that_must_wait_too_long_leaves_its_file_to_a_worker(dataset, monkeypatch):
    monkeypatch.setattr("apps.tasks.upload_jobs.ANSWER_SECONDS", 0.0)
    Upload.objects.create(
        dataset=dataset, state="loading", version=DatasetVersion.objects.create(dataset=dataset, number=1)
    )
    upload = load_now(upload=store(dataset, 1))
    assert (upload.state, upload.attempt, upload.version, upload.message) == ("queued", 0, None, "")


@pytest.mark.django_db
def test_the_turn_of_a_lost_worker_is_released_at_once(dataset):
    DatasetVersion.objects.create(dataset=dataset, number=1)
    upload = store(dataset, 1)
    assert load_queued_upload() is False
    assert (sweep_uploads(), load_queued_upload()) == (True, True)
    upload.refresh_from_db()
    assert (upload.state, dataset.latest_version().number) == ("ready", 1)


class Deleting(io.BytesIO):
    """A file during whose reading the version it builds on is deleted."""

    def __init__(self, content: bytes, version: DatasetVersion) -> None:
        super().__init__(content)
        self._version = version

    def read(self, size: int | None = -1, /) -> bytes:
        if DatasetVersion.objects.filter(pk=self._version.pk).exists():
            queue_deletion(dataset=self._version.dataset, version=self._version)
            delete_next()
        return super().read(size)


@pytest.mark.django_db
def test_rows_upserted_into_a_version_that_is_deleted_meanwhile_are_not_published(dataset):
    load(dataset, 1)
    version = load(dataset, 2).version
    with pytest.raises(DatasetIsBusy, match="A version of sums was deleted while the file was loaded"):
        upload_file(dataset=dataset, stream=Deleting(lines(3), version), filename="a", choices=Choices(mode="upsert"))
    assert (ids(dataset), Task.objects.count(), dataset.versions.count()) == ({"1"}, 1, 1)


@pytest.mark.django_db
def test_a_kept_file_is_loaded_again_on_the_version_that_is_then_the_latest(dataset, monkeypatch):
    load(dataset, 1)
    version = load(dataset, 2).version
    upload = store(dataset, 3)
    create = Task.objects.bulk_create

    def delete_first(tasks):
        monkeypatch.setattr(Task.objects, "bulk_create", create)
        queue_deletion(dataset=dataset, version=version)
        return create(tasks)

    monkeypatch.setattr(Task.objects, "bulk_create", delete_first)
    assert load_queued_upload() is True
    upload.refresh_from_db()
    assert (upload.state, upload.version, ids(dataset)) == ("queued", None, {"1"})
    assert load_queued_upload() is True
    assert ids(dataset) == {"1", "3"}


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_mark_the_same_tasks_at_once_neither_mark_is_lost(dataset):
    version = load(dataset, *range(200)).version
    chosen = list(version.tasks.values_list("pk", flat=True))
    both = threading.Barrier(2)

    def mark(tag: str) -> None:
        both.wait()
        mark_tasks(task_ids=chosen, add_tags=[tag])
        connection.close()

    for number in range(5):
        with ThreadPoolExecutor(2) as people:
            list(people.map(mark, [f"x{number}", f"y{number}"]))
    version.refresh_from_db()
    tags = {f"{who}{number}" for who in "xy" for number in range(5)}
    assert {frozenset(task.tags) for task in version.tasks.all()} == {frozenset(tags)}
    assert version.metrics["tags"] == dict.fromkeys(tags, 200)


@pytest.mark.django_db
def test_tasks_are_not_marked_while_the_next_version_takes_their_marks(dataset, monkeypatch):
    first, base = load(dataset, 1).version, load(dataset, 2, 3).version
    tried = []

    def settle(self: version_loading.Loader) -> None:
        with pytest.raises(DatasetIsBusy, match="Version 3 of sums is being loaded"):
            mark_tasks(task_ids=[base.tasks.first().pk], retired=True)
        tried.append(mark_tasks(task_ids=[first.tasks.first().pk], retired=True))
        whole(self)

    whole = version_loading.Loader._store_chunk
    monkeypatch.setattr(version_loading.Loader, "_store_chunk", settle)
    version = load(dataset, 2, 3, 4, mode="replace").version
    assert (tried, version.number) == ([1], 3)
    assert mark_tasks(task_ids=[version.tasks.first().pk, base.tasks.first().pk], retired=True) == 2
