"""The heartbeat: what it says, and when it takes back what others lost."""

import threading
import time

import pytest
from django.db import connection, transaction

from apps.rollouts.engine import worker_leases
from apps.rollouts.engine.claiming import Slots, claim_rollouts
from apps.rollouts.engine.worker_leases import (
    Heartbeat,
    Vitals,
    claiming_workers,
    reap_leases,
    release_unknown,
    renew_lease,
    take_lease,
)
from apps.rollouts.models import Rollout, Worker
from tests.rollouts.work import plan

pytestmark = pytest.mark.usefixtures("migrated")


def test_a_beat_says_how_the_worker_is():
    worker = take_lease(seats=8, group="gpu")
    vitals = Vitals(busy=3, backlog=7, trouble="The database is slow.", meters={"counts": []})
    assert renew_lease(worker_id=worker.pk, vitals=vitals)
    worker.refresh_from_db()
    assert (worker.group, worker.busy, worker.backlog, worker.trouble) == ("gpu", 3, 7, "The database is slow.")
    assert worker.meters == {"counts": []}


class Clock:
    """A clock that only the heartbeat's waiting moves. It replaces the module `time` and the event that ends it."""

    now = 0.0

    def monotonic(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        return False


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(worker_leases, "time", clock)
    return clock


def beat(clock, monkeypatch, renew):
    """What a heartbeat does, in order, until `renew` (given the number of the beat) says that the lease is lost."""
    done = []

    def count(**_):
        done.append("beat")
        return renew(done.count("beat"))

    monkeypatch.setattr(worker_leases, "renew_lease", count)
    monkeypatch.setattr(worker_leases, "reap_leases", lambda **_: done.append("reap"))
    beating = Heartbeat(worker_id=1, vitals=Vitals, lost=lambda: done.append("lost"))
    beating._stop = clock
    beating.start()
    beating.join()
    return done


def test_after_a_beat_that_failed_the_next_one_takes_nothing_from_others(clock, monkeypatch):
    """The database was away for all users: whoever is back first must leave the others time to renew."""

    def renew(number):
        if number == 2:
            raise OSError("no route to the database")
        return number < 8

    steady, back = ["beat", "reap"], ["beat", "beat", "beat"]
    assert beat(clock, monkeypatch, renew) == [*steady, *back, *steady * 3, "beat", "lost"]


def test_after_a_beat_that_took_long_nothing_is_taken_from_others(clock, monkeypatch, settings):
    """A database that hangs fails no call: it answers everybody late, and every lease looks old to who is first."""

    def renew(number):
        if number == 2:
            clock.now += settings.WORKER_LEASE_SECONDS
        return number < 5

    assert beat(clock, monkeypatch, renew) == ["beat", "reap", "beat", "beat", "beat", "reap", "beat", "lost"]


def test_a_renewed_lease_counts_from_when_it_was_renewed_not_from_when_that_was_asked_for(settings):
    """The statement may have waited for a lock for longer than a lease lasts."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL alone evaluates it when the row is reached; SQLite waits before the statement")
    settings.WORKER_LEASE_SECONDS = 10.0
    worker = take_lease(seats=1)
    locked = threading.Event()

    def lock():
        with transaction.atomic():
            Worker.objects.select_for_update().get(pk=worker.pk)
            locked.set()
            time.sleep(11)
        connection.close()

    thread = threading.Thread(target=lock)
    thread.start()
    locked.wait(60)
    assert renew_lease(worker_id=worker.pk, vitals=Vitals())
    thread.join()
    assert [pk for pk, _ in claiming_workers()] == [worker.pk]
    assert reap_leases() == 0


def test_rows_that_a_worker_holds_without_knowing_are_given_back_at_the_second_look():
    plan(repeats=1)
    worker = take_lease(seats=8)
    claims = claim_rollouts(lease=worker.pk, slots=Slots(4))
    known = {claim.rollout_id for claim in claims[:3]}
    stray = claims[3].rollout_id
    suspects = release_unknown(worker_id=worker.pk, known=known, unknown_before=set())
    assert suspects == {stray}
    assert release_unknown(worker_id=worker.pk, known=known, unknown_before=suspects) == set()
    assert list(Rollout.objects.filter(status="queued").values_list("pk", "lost")) == [(stray, 0)]
    assert set(Rollout.objects.filter(status="running").values_list("pk", flat=True)) == known
    assert Worker.objects.get().state == "active"
