"""Reservations of one worker: which statements it sends to PostgreSQL."""

import contextlib

import pytest

from apps.rollouts.engine import reservations
from apps.rollouts.engine.reservations import Reservations

ME, FIRST, SECOND = 7, 1, 2


class Database:
    """Answers as PostgreSQL would, and keeps the statements that change something."""

    vendor = "postgresql"

    def __init__(self):
        self.connection = object()
        self.locks = []
        self.stored = {}
        self.granted = 64
        self.changes = []
        self.is_lost = False

    @contextlib.contextmanager
    def cursor(self):
        yield self

    def execute(self, sql, given):
        if "rollouts_reserve(" in sql:
            _, collection, wanted, _, _, *running = given
            self._release(*running)
            self.changes.append(("reserve", collection, wanted))
            number = min(wanted, self.granted)
            self.stored[collection] = self.stored.get(collection, 0) + number
            self.rows = [(number,)]
        elif "rollouts_release" in sql:
            self.changes.append(("release", dict(zip(given[1], given[2], strict=True))))
            self._release(*given[1:])
            self.rows = [("",)]
        elif "advisory" in sql:
            self.locks.append((sql.split()[1], given))
        else:
            self.rows = [(True, pk, slots) for pk, slots in self.stored.items()] + [(False, SECOND, 3)]
        if self.is_lost:
            raise ConnectionError

    def _release(self, collections, numbers):
        running = dict(zip(collections, numbers, strict=True))
        self.stored = {pk: min(slots, running.get(pk, 0)) for pk, slots in self.stored.items()}

    def fetchone(self):
        return self.rows[0]

    def fetchall(self):
        return self.rows


@pytest.fixture
def database(monkeypatch):
    database = Database()
    monkeypatch.setattr(reservations, "connection", database)
    return database


def claim(mine, running, collection, wanted):
    assert mine.read(ME, running) == {SECOND: 3}
    taken = mine.reserve(collection, wanted=wanted, judge_calls=0, max_in_flight=None)
    mine.use(collection, taken)
    return taken


def test_each_connection_ends_the_one_before_it_and_locks_its_session_once(database):
    mine = Reservations()
    locked = [("pg_terminate_backend(pid)", [ME]), ("set_config('lock_timeout',", [ME])]
    claim(mine, {}, FIRST, 4)
    claim(mine, {}, FIRST, 2)
    mine.release(ME, {})
    assert database.locks == locked
    database.connection = object()
    mine.read(ME, {})
    assert database.locks == 2 * locked
    claim(mine, {}, FIRST, 4)
    database.connection = object()
    mine.release(ME, {})
    assert database.locks == 3 * locked


def test_slots_of_ended_rollouts_are_used_again_without_a_statement(database):
    mine = Reservations()
    assert claim(mine, {}, FIRST, 4) == 4
    assert claim(mine, {FIRST: 1}, FIRST, 3) == 3
    assert database.changes == [("reserve", FIRST, 4)]
    assert claim(mine, {FIRST: 2}, FIRST, 5) == 5
    assert (database.changes[1:], database.stored) == ([("reserve", FIRST, 3)], {FIRST: 7})


def test_unused_slots_of_another_collection_are_released_before_more_are_reserved(database):
    mine = Reservations()
    claim(mine, {}, SECOND, 4)
    claim(mine, {SECOND: 1}, FIRST, 3)
    assert database.changes[1:] == [("reserve", FIRST, 3)]
    assert database.stored == {SECOND: 1, FIRST: 3}


def test_slots_whose_reply_was_lost_are_found_at_the_next_claim(database):
    mine = Reservations()
    mine.read(ME, {})
    database.is_lost = True
    with pytest.raises(ConnectionError):
        mine.reserve(FIRST, wanted=4, judge_calls=0, max_in_flight=None)
    database.is_lost = False
    assert mine.exceed({})
    assert claim(mine, {}, FIRST, 4) == 4
    assert (database.changes, database.stored) == ([("reserve", FIRST, 4)], {FIRST: 4})
    mine.release(ME, {FIRST: 4})
    mine.release(ME, {})
    assert (database.changes[1:], database.stored) == ([("release", {})], {FIRST: 0})
