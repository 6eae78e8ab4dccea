"""The heartbeat: what it says, and when it takes back what others lost."""

import pytest

from apps.rollouts import heart as heart_module
from apps.rollouts.claiming import Slots, claim_rollouts
from apps.rollouts.heart import Heart
from apps.rollouts.leasing import Vitals, release_unknown, renew_lease, take_lease
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
        return done.count("beat") < 7

    monkeypatch.setattr(heart_module, "renew_lease", renew)
    monkeypatch.setattr(heart_module, "reap_leases", lambda: done.append("reap"))
    beating = Heart(worker_id=1, vitals=Vitals, lost=lambda: done.append("lost"))
    beating.start()
    beating.join()
    steady, back = ["beat", "reap"], ["beat", "beat"]
    assert done == [*steady, *back, *steady * 3, "beat", "lost"]


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
