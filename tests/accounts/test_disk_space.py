"""When a disk counts as full, and which errors say so."""

import errno
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, transaction

from apps.accounts import disk_space
from apps.accounts.disk_space import (
    DiskFull,
    Place,
    Shortage,
    find_shortage,
    free_folder_bytes,
    is_disk_full,
    note_error,
    reserve_of,
)
from apps.accounts.space_waits import FORGET_SECONDS, RETRY_SECONDS, SpaceWaits

GB = 1024**3
only_sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="measures the disk of the SQLite file")


def usage(monkeypatch, *, free: int, total: int = 100 * GB) -> None:
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free, total=total))
    disk_space.forget()


def caused_by(cause: Exception) -> OperationalError:
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


def test_a_small_disk_has_a_small_reserve_unless_the_operator_chose_one(settings):
    settings.MIN_FREE_BYTES = None
    assert [reserve_of(size) for size in (60 * 1024**2, 10 * GB, 4000 * GB)] == [3 * 1024**2, GB // 2, GB]
    settings.MIN_FREE_BYTES = 5 * GB
    assert reserve_of(10 * GB) == 5 * GB


def test_errors_of_a_full_disk_are_told_from_others(tmp_path):
    full = sqlite3.connect(tmp_path / "rows.sqlite3")
    full.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as refused:
        full.execute("CREATE TABLE a AS SELECT zeroblob(100000)")
    full.close()
    shortage = Shortage(Place.FILES, "/data", 1, 2)
    for error in (
        refused.value,
        caused_by(refused.value),
        caused_by(psycopg.errors.DiskFull("could not extend file")),
        OperationalError("could not write to file: No space left on device"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "quota"),
        DiskFull(shortage),
    ):
        assert is_disk_full(error), error
    for error in (
        None,
        OSError(errno.EACCES, "denied"),
        DataError("value too long"),
        ValueError("No space left on device"),
        caused_by(psycopg.errors.AdminShutdown("ends")),
    ):
        assert not is_disk_full(error), error


@only_sqlite
@pytest.mark.django_db
def test_a_disk_below_its_reserve_is_named_with_free_and_needed_space(settings, monkeypatch):
    settings.MIN_FREE_BYTES = None
    usage(monkeypatch, free=2 * GB)
    assert find_shortage() is None
    usage(monkeypatch, free=GB // 8)
    for place in Place:
        shortage = find_shortage(place)
        assert shortage is not None
        assert (shortage.free, shortage.needed) == (GB // 8, GB)
        assert "128.0 MB free" in str(shortage)
        assert "1.0 GB needed" in str(shortage)


@only_sqlite
@pytest.mark.django_db
def test_pages_that_sqlite_can_use_again_count_as_free(settings, monkeypatch, transactional_db):
    settings.MIN_FREE_BYTES = 1024**2
    with connection.cursor() as cursor:
        # Earlier tests may have left free pages.
        cursor.execute("VACUUM")
    usage(monkeypatch, free=1024**2 - 100_000)
    assert find_shortage(Place.DATABASE) is not None
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler AS SELECT zeroblob(2000000)")
        cursor.execute("DROP TABLE filler")
    usage(monkeypatch, free=1024**2 - 100_000)
    assert find_shortage(Place.DATABASE) is None
    assert find_shortage(Place.FILES) is not None
    # But nothing can be written without space for the write-ahead log.
    usage(monkeypatch, free=1024)
    assert find_shortage(Place.DATABASE) is not None


@only_sqlite
@pytest.mark.django_db(transaction=True)
def test_the_write_ahead_log_gives_its_space_back_while_a_disk_is_full(monkeypatch, full_disk):
    full_disk.free()
    log = Path(f"{connection.settings_dict['NAME']}-wal")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler AS SELECT zeroblob(9000000)")
        cursor.execute("DROP TABLE filler")
    assert log.stat().st_size > 9_000_000
    assert find_shortage() is None
    assert log.stat().st_size > 9_000_000
    full_disk.fill()
    assert find_shortage() is not None
    assert log.stat().st_size == 0


@only_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_log_in_use_by_another_connection_is_not_truncated(full_disk):
    log = Path(f"{connection.settings_dict['NAME']}-wal")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler AS SELECT 1")
        assert not disk_space.truncate_write_ahead_log()
        cursor.execute("DROP TABLE filler")
    assert log.exists()


@pytest.mark.django_db(transaction=True)
def test_what_the_database_refused_is_remembered_until_a_probe_succeeds(settings, monkeypatch):
    settings.MIN_FREE_BYTES = 0
    monkeypatch.setattr(disk_space, "MEASURE_SECONDS", 0)
    assert find_shortage() is None
    assert note_error(OperationalError("could not extend file: No space left on device"))
    shortage = find_shortage()
    assert shortage is not None
    assert shortage.place is Place.DATABASE
    monkeypatch.setattr(disk_space, "PROBE_SECONDS", 0)
    assert find_shortage() is None  # this disk has space: the probe wrote


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_away_since_its_disk_was_full_is_still_full(settings, monkeypatch):
    settings.MIN_FREE_BYTES = 0
    monkeypatch.setattr(disk_space, "MEASURE_SECONDS", 0)
    monkeypatch.setattr(disk_space, "PROBE_SECONDS", 0)

    def gone(*args, **kwargs):
        raise OperationalError("connection refused")

    monkeypatch.setattr(disk_space, "_database_folder", gone)
    assert disk_space._probe(had_failed=True)
    assert not disk_space._probe(had_failed=False)


def test_a_job_waits_until_there_is_as_much_as_it_needs():
    room = [100]
    waits = SpaceWaits(lambda: room[0])
    waits.put(1, 500)
    waits.put(2, 50)
    assert waits.waiting() == [1]
    room[0] = 500
    assert waits.waiting() == []
    # It ran out once more though there was as much: it does not try again and again.
    waits.put(1, 500)
    assert waits.waiting() == [1]
    waits.forget(1)
    assert waits.waiting() == []


def test_a_job_that_ran_out_of_space_often_is_not_kept_waiting_for_more_than_it_needs(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("apps.accounts.space_waits.time.monotonic", lambda: now[0])
    waits = SpaceWaits(lambda: 600)
    for _ in range(9):
        waits.put(1, 500)
    assert waits.waiting() == [1]
    now[0] = FORGET_SECONDS
    assert waits.waiting() == []


def test_a_job_that_ran_out_of_space_at_once_does_not_try_again_at_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("apps.accounts.space_waits.time.monotonic", lambda: now[0])
    waits = SpaceWaits(lambda: 600)
    waits.put(1, 0)
    assert waits.waiting() == [1]
    now[0] = RETRY_SECONDS
    assert waits.waiting() == []


def test_a_job_that_wrote_nothing_waits_only_while_the_disk_is_below_its_reserve():
    room = [-1]
    waits = SpaceWaits(lambda: room[0])
    waits.put(1, 0)
    assert waits.waiting() == [1]
    room[0] = 0
    assert waits.waiting() == []


def test_the_room_of_a_folder_that_is_not_there_is_unknown(tmp_path):
    assert free_folder_bytes(tmp_path) > 0
    assert free_folder_bytes(tmp_path / "gone") is None


def test_a_job_of_unknown_size_is_retried_later(monkeypatch):
    waits = SpaceWaits(lambda: None)
    waits.put(1, 500)
    assert waits.waiting() == [1]
    monkeypatch.setattr("apps.accounts.space_waits.time.monotonic", lambda: 10.0**12)
    assert waits.waiting() == []


def test_a_thread_that_asks_during_the_first_measurement_waits_for_it(monkeypatch):
    shortage, measuring = Shortage(Place.FILES, "/x", 1, 2), threading.Event()

    def measure():
        measuring.set()
        time.sleep(0.2)
        return [shortage]

    watch = disk_space._DiskMonitor()
    monkeypatch.setattr(watch, "_find_shortages", measure)
    first = threading.Thread(target=watch.find, args=[None])
    first.start()
    measuring.wait()
    assert watch.find(None) == shortage
    first.join()
