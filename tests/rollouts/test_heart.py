"""The heartbeat: what it says, and when it takes back what others lost."""

import threading
import time

import pytest
from django.db import connection, transaction

from apps.rollouts import heart as heart_module
from apps.rollouts.claiming import Slots, claim_rollouts
from apps.rollouts.heart import Heart
from apps.rollouts.leasing import Vitals, live_workers, reap_leases, release_unknown, renew_lease, take_lease
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


def test_after_a_beat_that_failed_the_next_one_takes_nothing_from_others(monkeypatch, settings):
    """The database was away for everybody: whoever is back first must leave the others time to renew."""
    settings.WORKER_LEASE_SECONDS = 0.06
    done = []

    def renew(**_):
        done.append("beat")
        if done.count("beat") == 2:
            raise OSError("no route to the database")
        return done.count("beat") < 8

    monkeypatch.setattr(heart_module, "renew_lease", renew)
    monkeypatch.setattr(heart_module, "reap_leases", lambda: done.append("reap"))
    beating = Heart(worker_id=1, vitals=Vitals, lost=lambda: done.append("lost"))
    beating.start()
    beating.join()
    steady, back = ["beat", "reap"], ["beat", "beat", "beat"]
    assert done == [*steady, *back, *steady * 3, "beat", "lost"]


def test_after_a_beat_that_took_long_nothing_is_taken_from_others(monkeypatch, settings):
    """A database that hangs fails no call: it answers everybody late, and every lease looks old to who is first."""
    settings.WORKER_LEASE_SECONDS = 0.3
    done = []

    def renew(**_):
        done.append("beat")
        if done.count("beat") == 2:
            time.sleep(0.4)
        return done.count("beat") < 5

    monkeypatch.setattr(heart_module, "renew_lease", renew)
    monkeypatch.setattr(heart_module, "reap_leases", lambda: done.append("reap"))
    beating = Heart(worker_id=1, vitals=Vitals, lost=lambda: done.append("lost"))
    beating.start()
    beating.join()
    assert done == ["beat", "reap", "beat", "beat", "beat", "reap", "beat", "lost"]


def test_a_renewed_lease_counts_from_when_it_was_renewed_not_from_when_that_was_asked_for(settings):
    """The statement may have waited for a lock for longer than a lease lasts."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL alone evaluates it when the row is reached; SQLite waits before the statement")
    settings.WORKER_LEASE_SECONDS = 1.0
    worker = take_lease(seats=1)
    locked = threading.Event()

    def lock():
        with transaction.atomic():
            Worker.objects.select_for_update().get(pk=worker.pk)
            locked.set()
            time.sleep(1.5)
        connection.close()

    thread = threading.Thread(target=lock)
    thread.start()
    locked.wait(10)
    assert renew_lease(worker_id=worker.pk, vitals=Vitals())
    thread.join()
    assert [pk for pk, _ in live_workers()] == [worker.pk]
    assert reap_leases() == 0


def test_rows_that_a_worker_holds_without_knowing_are_given_back_at_the_second_look():
    plan(repeats=1)
    worker = take_lease(seats=8)
    claims = claim_rollouts(lease=worker.pk, slots=Slots(4))
    known = {claim.rollout_id for claim in claims[:3]}
    stray = claims[3].rollout_id
    suspects = release_unknown(worker_id=worker.pk, known=known, suspects=set())
    assert suspects == {stray}
    assert release_unknown(worker_id=worker.pk, known=known, suspects=suspects) == set()
    assert list(Rollout.objects.filter(status="queued").values_list("pk", "lost")) == [(stray, 0)]
    assert set(Rollout.objects.filter(status="running").values_list("pk", flat=True)) == known
    assert Worker.objects.get().state == "active"
