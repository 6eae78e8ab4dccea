"""After deletions the SQLite file shrinks, in steps, to nearly what is left."""

import secrets
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from apps.accounts.disk_space import truncate_write_ahead_log
from apps.gym.traces.events import Prompt, encode_event
from apps.gym.traces.items import message
from apps.rollouts import free_pages
from apps.rollouts.free_pages import count_free_pages, return_free_pages
from apps.rollouts.models import Collection, TraceEvent
from apps.rollouts.steering.collection_deletion import delete_next_collection
from apps.rollouts.steering.trace_deletion import queue_trace_deletion
from gymweb.databases import prepare_file
from tests.factories import make_collection, make_rollout

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL returns pages itself"),
]


@pytest.fixture
def file():
    """The file of the test database, which shrinks in steps during the test."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
        cursor.execute("VACUUM")
    yield Path(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum = NONE")
        cursor.execute("VACUUM")


def delete_megabytes(number: int) -> int:
    """Store so many megabytes of traces and delete them. Return the deleted bytes."""
    collection = make_collection(state="completed", finished_at=timezone.now() - timedelta(days=1))
    payload = encode_event(Prompt(items=[message("user", secrets.token_hex(1024**2))]))
    for _ in range(number):
        rollout = make_rollout(collection, trace=[])
        TraceEvent.objects.create(rollout=rollout, attempt=1, seq=0, kind="prompt", payload=payload)
    deletion = queue_trace_deletion(collection=Collection.objects.get(pk=collection.pk))
    while delete_next_collection():
        pass
    deletion.refresh_from_db()
    assert deletion.deleted_bytes > number * 1024**2 / 2
    return deletion.deleted_bytes


def test_the_file_shrinks_by_what_was_deleted(file):
    deleted = delete_megabytes(12)
    truncate_write_ahead_log()
    before, free = file.stat().st_size, count_free_pages()
    for step in range(1, 3):
        assert return_free_pages()
        assert free - count_free_pages() == step * free_pages.STEP_PAGES
    while return_free_pages():
        pass
    assert before - file.stat().st_size >= 0.9 * deleted
    assert count_free_pages() == 0
    assert not return_free_pages()


def test_a_few_free_pages_are_kept_for_new_rows(file):
    delete_megabytes(1)
    free = count_free_pages()
    assert 0 < free < free_pages.START_PAGES
    assert not return_free_pages()
    assert count_free_pages() == free


def test_the_command_rewrites_a_file_of_an_earlier_version(file):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum = NONE")
        cursor.execute("VACUUM")
    deleted = delete_megabytes(6)
    truncate_write_ahead_log()
    before = file.stat().st_size
    assert not return_free_pages()
    call_command("vacuum", stdout=StringIO())
    assert before - file.stat().st_size >= 0.9 * deleted
    assert free_pages.is_incremental()
    deleted = delete_megabytes(2)
    truncate_write_ahead_log()
    before = file.stat().st_size
    call_command("vacuum", stdout=StringIO())
    assert before - file.stat().st_size >= 0.9 * deleted


def test_a_new_file_shrinks_in_steps_from_the_start(tmp_path):
    import sqlite3

    path = tmp_path / "gymweb.sqlite3"
    path.touch()
    prepare_file(path)
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (free_pages.INCREMENTAL,)
    database.close()
