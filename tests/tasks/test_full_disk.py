"""Uploads on a full disk: they wait, say so, can be cancelled, and go on by themselves."""

import errno
import gzip
import io
import sqlite3
import tempfile

import orjson
import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.disk_space import DiskFull
from apps.gym.tasks.files import parquet
from apps.gym.tasks.files.file_limits import Limits
from apps.gym.tasks.files.row_source import open_rows
from apps.tasks import rejected_rows, upload_jobs, version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import DatasetVersion, Task, Upload
from apps.tasks.received_files import store_file
from apps.tasks.upload_jobs import discard_upload, load_now, load_queued_upload, upload_file
from tests.factories import make_environment, make_row, make_user

pytestmark = pytest.mark.django_db

ROWS = [orjson.dumps(make_row(f"What is {number}?")) for number in range(50)]


@pytest.fixture
def dataset():
    return create_dataset(slug="sums", name="Sums", environment=make_environment())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 10)


def store(dataset, rows=ROWS) -> Upload:
    return store_file(dataset=dataset, stream=io.BytesIO(gzip.compress(b"\n".join(rows))), filename="rows.jsonl.gz")


def fill_after(monkeypatch, disk, chunks: int) -> None:
    """Let the disk be full when so many chunks are stored."""
    stored = []
    create = Task.objects.bulk_create

    def create_and_fill(tasks):
        create(tasks)
        stored.append(len(tasks))
        if len(stored) == chunks:
            disk.fill()

    monkeypatch.setattr(version_loading.Task.objects, "bulk_create", create_and_fill)


def test_an_upload_waits_when_the_disk_fills_up_and_goes_on_when_it_is_freed(dataset, disk, monkeypatch):
    upload = store(dataset)
    fill_after(monkeypatch, disk, chunks=2)
    assert load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, upload.attempt) == ("queued", 0)
    assert "Waiting for disk space" in upload.message
    assert (DatasetVersion.objects.count(), Task.objects.count()) == (0, 0)
    if disk.is_measured:
        # It does not try again while there is too little space: it would fill the disk once more.
        assert not load_queued_upload()
    disk.free()
    if not disk.is_measured:
        upload_jobs._waits.forget(upload.pk)
    assert load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, upload.accepted, upload.attempt, upload.message) == ("ready", 50, 1, "")


def test_an_upload_that_waits_does_not_hold_up_others_and_can_be_cancelled(dataset, disk, uploads_dir):
    large, small = store(dataset), store(dataset, ROWS[:3])
    upload_jobs._waits.put(large.pk, 2**60)
    disk.free()
    if not disk.is_measured:
        waits = upload_jobs._waits._waits
        waits[large.pk] = waits[large.pk]._replace(not_before=float("inf"))
    assert load_queued_upload()
    small.refresh_from_db()
    assert small.state == "ready"
    assert not load_queued_upload()
    discard_upload(upload=large)
    assert not Upload.objects.filter(pk=large.pk).exists()
    assert list(uploads_dir.iterdir()) == []


def test_page_and_api_show_why_an_upload_waits(dataset, disk):
    upload = store(dataset)
    client = Client()
    client.force_login(make_user())
    assert client.get(f"/api/v1/uploads/{upload.pk}/").json()["message"] == ""
    disk.fill()
    assert client.get(f"/api/v1/uploads/{upload.pk}/").json()["message"].startswith("Waiting for disk space")
    shown = client.get(reverse("dashboard:upload_detail", args=[upload.pk])).text
    assert "Waiting for disk space" in shown
    assert reverse("dashboard:upload_discard", args=[upload.pk]) in shown


@pytest.mark.parametrize("broken", ["system", "keys"])
def test_a_write_that_the_disk_refuses_is_no_failure_of_the_file(dataset, disk, monkeypatch, broken):
    upload = store(dataset)

    def refuse(*args, **kwargs):
        if broken == "system":
            raise OSError(errno.ENOSPC, "No space left on device")
        keys = sqlite3.connect(":memory:")
        keys.execute("PRAGMA max_page_count = 1")
        keys.execute("CREATE TABLE keys AS SELECT zeroblob(100000)")

    monkeypatch.setattr(upload_jobs, "Loader", refuse)
    assert load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, upload.attempt) == ("queued", 0)
    upload_jobs._waits.forget(upload.pk)


def test_who_waits_for_the_load_is_told_that_it_waits_for_space(dataset, disk, monkeypatch):
    upload = store(dataset)
    fill_after(monkeypatch, disk, chunks=1)
    assert load_now(upload=upload).state == "queued"
    upload_jobs._waits.forget(upload.pk)


def test_a_command_without_a_kept_file_fails_and_says_why(dataset, disk, monkeypatch):
    fill_after(monkeypatch, disk, chunks=1)
    with pytest.raises(DiskFull):
        upload_file(dataset=dataset, stream=io.BytesIO(b"\n".join(ROWS)), filename="rows.jsonl")
    upload = Upload.objects.get()
    assert (upload.state, upload.message.startswith("The disk is full")) == ("failed", True)
    assert Task.objects.count() == 0


def test_refused_rows_wait_too(dataset, disk, monkeypatch):
    monkeypatch.setattr(rejected_rows, "LOOK_AT_DISK_ROWS", 10)
    upload = store(dataset, [b"no row"] * 50)
    monkeypatch.setattr(upload_jobs, "SeenKeys", _fill_on_enter(disk))
    assert load_queued_upload()
    upload.refresh_from_db()
    assert upload.state == "queued"
    upload_jobs._waits.forget(upload.pk)


def _fill_on_enter(disk):
    original = upload_jobs.SeenKeys

    def begin():
        disk.fill()
        return original()

    return begin


def test_a_packed_parquet_file_is_unpacked_only_while_there_is_space(tmp_path):
    looked = []

    def check(folder: str) -> None:
        looked.append(folder)
        if len(looked) == 3:
            raise DiskFull(None)

    packed = gzip.compress(parquet.MAGIC + bytes(50 * 1024**2))
    limits = Limits(folder=str(tmp_path), check_folder=check)
    file = open_rows(io.BytesIO(packed), filename="rows.parquet.gz", limits=limits)
    with pytest.raises(DiskFull):
        next(file.rows)
    assert looked == [str(tmp_path)] * 3
    assert tempfile.tempdir is None or list(tmp_path.iterdir()) == []
