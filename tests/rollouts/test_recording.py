"""Record events in few statements, and the end of each attempt exactly once."""

import random

import pytest
from django.db import connection
from django.utils import timezone

from apps.rollouts.engine.claiming import Slots, claim_rollouts
from apps.rollouts.engine.recording import record_batch
from apps.rollouts.engine.worker_leases import take_lease
from apps.rollouts.models import Collection, Rollout, TraceEvent
from tests.factories import make_collection, make_rollout
from tests.rollouts.work import end, plan, record

pytestmark = pytest.mark.usefixtures("migrated")


def incompressible(size):
    return random.Random(size).randbytes(size).decode("latin-1")


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL is sent events one after the other")
@pytest.mark.parametrize(("sizes", "statements"), [([10] * 600, 6), ([5_000_000] * 4, 4), ([10, 20_000_000, 10], 3)])
def test_large_events_are_stored_in_statements_of_their_own(sizes, statements):
    rollout = make_rollout(make_collection())
    events = [(rollout.pk, 2, seq, "prompt", incompressible(size), None) for seq, size in enumerate(sizes)]
    queries = []
    connection.connection.set_trace_callback(queries.append)
    record_batch(events=events, ends=[], now=timezone.now())
    connection.connection.set_trace_callback(None)
    inserts = [query for query in queries if query.startswith("INSERT INTO rollouts_traceevent")]
    assert len(inserts) == statements
    stored = TraceEvent.objects.filter(rollout=rollout, attempt=2).order_by("seq")
    assert [len(payload) for payload in stored.values_list("payload", flat=True)] == sizes


def claimed(number=1):
    """Return a worker and the claims of that many rollouts."""
    plan(repeats=number)
    worker = take_lease(seats=number)
    return worker, claim_rollouts(lease=worker.pk, slots=Slots(number))


def counters(collection_id):
    names = ("completed", "failed", "retried", "rewarded", "reward_sum")
    return Collection.objects.filter(pk=collection_id).values(*names).get()


def test_an_earlier_attempt_of_the_same_worker_is_refused():
    worker, [claim] = claimed()
    record([end(claim, "queued")])
    assert Rollout.objects.get(pk=claim.rollout_id).finished_at is None
    [again] = claim_rollouts(lease=worker.pk, slots=Slots(1))
    assert (again.rollout_id, again.attempt) == (claim.rollout_id, claim.attempt + 1)
    before = counters(claim.collection_id)
    assert record([end(claim)]) == set()
    assert Rollout.objects.get(pk=claim.rollout_id).status == "running"
    assert counters(claim.collection_id) == before
    assert record([end(again)]) == {claim.collection_id}
    assert counters(claim.collection_id) == {**before, "completed": 1, "rewarded": 1, "reward_sum": 1.0}


def test_an_end_that_names_another_lease_is_refused():
    _, [claim] = claimed()
    other = take_lease(seats=1)
    assert record([end(claim._replace(lease=other.pk))]) == set()
    assert Rollout.objects.get(pk=claim.rollout_id).status == "running"


def test_an_end_that_arrives_twice_counts_once():
    _, [claim] = claimed()
    assert record([end(claim)]) == {claim.collection_id}
    assert record([end(claim, "failed")]) == set()
    assert counters(claim.collection_id)["completed"] == 1
    assert counters(claim.collection_id)["failed"] == 0


def test_rewards_are_summed_and_attempts_without_one_are_not_counted():
    _, claims = claimed(2)
    first, second, *_ = claims
    record([end(first, reward=0.25), end(second, "failed")])
    found = counters(first.collection_id)
    assert (found["completed"], found["failed"], found["rewarded"], found["reward_sum"]) == (1, 1, 1, 0.25)


def test_deferred_attempts_are_not_counted_as_retried():
    _, claims = claimed(2)
    record([end(claims[0], "queued", deferred=True), end(claims[1], "queued")])
    assert counters(claims[0].collection_id)["retried"] == 1
