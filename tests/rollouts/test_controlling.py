"""Pause, resume, adjust, retry, drain."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.rollouts.engine.claimed_work import read_updates
from apps.rollouts.engine.claiming import Slots, claim_rollouts
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.engine.worker_leases import claiming_workers, release_lease, take_lease
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.steering import controls
from apps.rollouts.steering.controls import (
    CannotSteer,
    adjust_collection,
    cancel_collection,
    drain_worker,
    pause_collection,
    resume_collection,
    retry_failed,
    sweep_cancelled,
)
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE
from tests.factories import make_user
from tests.rollouts.work import NO_LIMITS, end, plan, record

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 5


def test_a_paused_collection_is_not_claimed_and_a_resumed_one_is():
    collection, user = plan(), make_user()
    for _ in range(2):
        assert pause_collection(collection=collection, user=user).pause_reason == "asked"
    lease = take_lease(seats=8).pk
    assert claim_rollouts(lease=lease, slots=NO_LIMITS) == []
    for _ in range(2):
        assert resume_collection(collection=collection, user=user).state == "running"
    assert len(claim_rollouts(lease=lease, slots=NO_LIMITS)) == 8
    assert list(AuditEntry.objects.filter(user=user).values_list("action", flat=True).order_by("id")) == [
        "collection.paused",
        "collection.resumed",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"concurrency": 0}, "Give a number of at least 1"),
        ({"priority": 5000}, "Give a number of at most 1,000"),
        ({"priority": -1001}, "Give a number of at least -1,000"),
        ({"max_cost": float("nan")}, "Give a finite number"),
    ],
)
def test_a_limit_out_of_its_range_is_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        adjust_collection(collection=plan(), changes=changes)


def test_a_finished_collection_cannot_be_paused_resumed_or_adjusted():
    collection = cancel_collection(collection=plan())
    for steer in (pause_collection, resume_collection):
        with pytest.raises(CannotSteer, match="cancelled"):
            steer(collection=collection)
    with pytest.raises(CannotSteer, match="cancelled"):
        adjust_collection(collection=collection, changes={"priority": 1})
    with pytest.raises(CannotSteer, match="cancelled"):
        Rollout.objects.filter(collection=collection).update(
            status="failed", error_kind="policy_error", attempt=1, finished_at=timezone.now()
        )
        retry_failed(collection=collection)


def test_the_priority_of_a_running_collection_can_be_changed():
    first, second = plan(), plan()
    adjust_collection(collection=second, changes={"priority": -1})
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=Slots(3))
    assert {claim.collection_id for claim in claims} == {second.pk}
    assert first.priority == 0


def test_a_paused_collection_can_be_cancelled():
    collection = cancel_collection(collection=pause_collection(collection=plan()))
    assert (collection.state, collection.cancelled, collection.pause_reason) == ("cancelled", 8, "")


def fail(collection, *kinds):
    worker = take_lease(seats=8)
    claims = claim_rollouts(lease=worker.pk, slots=Slots(len(kinds)))
    record([end(claim, "failed", error_kind=kind) for claim, kind in zip(claims, kinds, strict=True)])
    release_lease(worker_id=worker.pk)
    collection.refresh_from_db()
    return collection


@pytest.mark.parametrize(("kinds", "queued"), [((), 3), (("policy_error",), 2), (("worker_lost",), 0)])
def test_failed_rollouts_are_retried_all_or_by_their_kind(monkeypatch, kinds, queued):
    monkeypatch.setattr(controls, "CHUNK", 2)
    collection = fail(plan(), "policy_error", "timed_out", "policy_error")
    assert retry_failed(collection=collection, error_kinds=kinds) == queued
    collection.refresh_from_db()
    assert (collection.failed, collection.retried, collection.state) == (3 - queued, queued, "running")
    assert collection.rollouts.filter(status="queued").count() == 5 + queued
    assert collection.rollouts.filter(status="failed").count() == 3 - queued


def test_a_completed_collection_runs_again_for_its_retries_and_keeps_the_earlier_attempts():
    collection = plan(repeats=1)
    collection = fail(collection, *["environment_error"] * 4)
    assert collection.state == "completed"
    assert retry_failed(collection=collection) == 4
    collection.refresh_from_db()
    assert (collection.state, collection.finished_at) == ("running", None)
    collection = async_to_sync(finish_collection)(collection, progress=lambda _: None)
    assert (collection.state, collection.completed, collection.failed, collection.retried) == ("completed", 4, 0, 4)
    assert set(Rollout.objects.values_list("attempt", "failures")) == {(2, 0)}


def test_queued_rollouts_of_an_interrupted_cancel_are_cancelled():
    collection = cancel_collection(collection=plan(repeats=1))
    Rollout.objects.filter(collection=collection).update(status="queued")
    Collection.objects.filter(pk=collection.pk).update(cancelled=0)
    assert [sweep_cancelled(), sweep_cancelled()] == [True, False]
    collection.refresh_from_db()
    assert (collection.cancelled, collection.ended) == (4, 4)


def test_a_drained_worker_claims_nothing_finishes_and_leaves():
    async def drained():
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        while not worker.lease:
            await asyncio.sleep(0.01)
        row = await Worker.objects.aget(pk=worker.lease)
        assert (await sync_to_async(drain_worker)(worker=row)).state == "draining"
        collection = await sync_to_async(plan)()
        async with asyncio.timeout(DEADLINE):
            await working
        return row, collection

    row, collection = async_to_sync(drained)()
    row.refresh_from_db()
    collection.refresh_from_db()
    assert (row.state, claiming_workers()) == ("stopped", [])
    assert (collection.completed, collection.rollouts.filter(status="queued").count()) == (0, 8)
    with pytest.raises(CannotSteer, match="stopped"):
        drain_worker(worker=row)


def test_a_late_cancel_changes_nothing():
    collection = plan(repeats=1)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    record([end(claim, "failed") for claim in claims])
    stale = Collection.objects.get(pk=collection.pk)
    assert stale.state == "completed"
    assert retry_failed(collection=collection) == 4
    controls._cancel_queued(stale)  # of a canceller whose UPDATE found it completed, before the retry
    assert Rollout.objects.filter(status="queued").count() == 4
    record([end(claim) for claim in claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)])
    with pytest.raises(CannotSteer, match="is completed: no rollouts are left to cancel"):
        cancel_collection(collection=collection)


def test_a_retry_that_a_limit_would_stop_is_refused_and_one_of_an_old_collection_begins_its_time_anew():
    collection = plan(repeats=1, max_tokens=100)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    record([end(claim, "failed", input_tokens=30) for claim in claims])
    with pytest.raises(CannotSteer, match="the token limit is reached: raise or remove the token limit"):
        retry_failed(collection=collection)
    adjust_collection(collection=collection, changes={"max_tokens": None, "max_seconds": 60})
    long_ago = timezone.now() - timedelta(days=8)
    Collection.objects.update(started_at=long_ago)
    assert retry_failed(collection=collection) == 4
    collection.refresh_from_db()
    assert (collection.state, collection.started_at) == ("running", None)


def test_a_rollout_that_goes_back_to_the_queue_has_not_ended():
    plan(repeats=1)
    worker = take_lease(seats=8)
    claim_rollouts(lease=worker.pk, slots=NO_LIMITS)
    release_lease(worker_id=worker.pk)
    assert set(Rollout.objects.values_list("status", "finished_at")) == {("queued", None)}


def test_what_runs_of_a_deleted_collection_is_dropped():
    collection = plan(repeats=1)
    seen = read_updates(lease=take_lease(seats=8).pk, running=Counter([collection.pk, collection.pk + 1]), reports={})
    assert seen.cancelled == {collection.pk + 1}
