"""Rollouts that lost their worker run in ever smaller company, so that one that kills workers takes nobody along."""

import pytest

from apps.rollouts.engine.claiming import MAX_SUSPECTS, Slots, claim_rollouts
from apps.rollouts.engine.worker_leases import reap_leases, release_lease, take_lease
from apps.rollouts.models import Rollout
from tests.rollouts.work import NO_LIMITS, end, expire, plan, record

pytestmark = pytest.mark.usefixtures("migrated")


def lost_times(collection, lost, number):
    """Mark that many queued rollouts as having lost a worker so often."""
    ids = collection.rollouts.filter(lost=0).values_list("pk", flat=True)[:number]
    Rollout.objects.filter(pk__in=list(ids)).update(lost=lost)


def test_rollouts_that_lost_a_worker_once_are_claimed_in_small_company_beside_others():
    collection = plan(repeats=60)
    lost_times(collection, 1, 100)
    worker = take_lease(seats=256)
    first = claim_rollouts(lease=worker.pk, slots=Slots(256))
    assert [claim.lost for claim in first] == [1] * MAX_SUSPECTS
    second = claim_rollouts(lease=worker.pk, slots=Slots(192, running=64, suspects=64))
    assert {claim.lost for claim in second} == {0}
    third = claim_rollouts(lease=worker.pk, slots=Slots(192, running=10, suspects=MAX_SUSPECTS - 3))
    assert sorted(claim.lost for claim in third)[-4:] == [0, 1, 1, 1]


def test_a_rollout_that_lost_two_workers_gets_one_to_itself():
    collection = plan(repeats=2)
    lost_times(collection, 2, 2)
    worker = take_lease(seats=64)
    busy = claim_rollouts(lease=worker.pk, slots=Slots(64, running=1))
    assert {claim.lost for claim in busy} == {0}
    record([end(claim) for claim in busy])
    assert [claim.lost for claim in claim_rollouts(lease=worker.pk, slots=NO_LIMITS)] == [2]
    plan()
    assert claim_rollouts(lease=worker.pk, slots=Slots(63, running=1, alone=True)) == []
    assert claim_rollouts(lease=worker.pk, slots=Slots(63, running=1)) != []


def test_rollouts_that_lost_a_worker_are_limited_over_all_collections():
    for collection in (plan(repeats=5), plan(repeats=5)):
        lost_times(collection, 1, 20)
    worker = take_lease(seats=256)
    claims = claim_rollouts(lease=worker.pk, slots=Slots(216, running=40, suspects=MAX_SUSPECTS - 24))
    assert [claim.lost for claim in claims] == [1] * 24


def test_one_worker_makes_way_for_a_rollout_that_must_run_alone():
    collection = plan(repeats=2)
    lost_times(collection, 2, 1)
    worker = take_lease(seats=64)
    assert claim_rollouts(lease=worker.pk, slots=Slots(60, running=4, yields=True)) == []
    assert len(claim_rollouts(lease=worker.pk, slots=Slots(60, running=4))) == 7


def test_a_rollout_without_slots_displaces_no_other():
    collection = plan(repeats=2)
    lost_times(collection, 2, 1)
    other = plan(repeats=1)
    slots = Slots(60, models={collection.policy_model_id: 0}, running=4, yields=True)
    claims = claim_rollouts(lease=take_lease(seats=64).pk, slots=slots)
    assert {claim.collection_id for claim in claims} == {other.pk}


def test_the_one_that_kills_its_worker_fails_and_its_neighbours_complete():
    """Every worker that has the killer dies with all it runs; no other rollout may fail for that."""
    collection = plan(repeats=64)
    killer = collection.rollouts.order_by("pk")[70].pk
    for _ in range(1_000):
        worker = take_lease(seats=256)
        held = []
        while claims := claim_rollouts(
            lease=worker.pk,
            slots=Slots(
                256 - len(held),
                running=len(held),
                suspects=sum(claim.lost > 0 for claim in held),
                alone=any(claim.lost > 1 for claim in held),
                yields=True,
            ),
        ):
            held += claims
        if not held:
            break
        if killer in {claim.rollout_id for claim in held}:
            expire(worker)
            reap_leases()
        else:
            record([end(claim) for claim in held])
            release_lease(worker_id=worker.pk)
    collection.refresh_from_db()
    failed = Rollout.objects.get(status="failed")
    assert (failed.pk, failed.error_kind, failed.lost, failed.reward) == (killer, "worker_lost", 3, None)
    assert (collection.state, collection.completed, collection.failed) == ("completed", 255, 1)
