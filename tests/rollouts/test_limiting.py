"""Limits of a collection: when one is reached it pauses, what is in flight ends, and nothing is lost."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.rollouts.engine.claiming import Slots, claim_rollouts
from apps.rollouts.engine.collection_limits import FIRST_CLAIM, Budget, pause_overdue, rollouts_within_budget
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.worker_leases import drain_lease, take_lease
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.controls import CannotSteer, adjust_collection, resume_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_agent, make_dataset, make_environment, make_policy_model
from tests.rollouts.work import NO_LIMITS, end, plan, record, serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []


@pytest.mark.parametrize(
    ("limit", "used", "reason"),
    [
        ({"max_tokens": 100}, {"input_tokens": 60, "output_tokens": 40}, "max_tokens"),
        ({"max_tokens": 100}, {"input_tokens": 60, "output_tokens": 30, "judge_tokens": 10}, "max_tokens"),
        ({"max_cost": 0.5}, {"cost": 0.5}, "max_cost"),
    ],
)
def test_a_collection_that_used_up_a_limit_pauses_and_says_which(limit, used, reason):
    collection = plan(**limit)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=Slots(2))
    record([end(claims[0], **used)])
    collection.refresh_from_db()
    assert (collection.state, collection.pause_reason) == ("paused", reason)
    assert claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS) == []
    record([end(claims[1])])
    collection.refresh_from_db()
    assert (collection.completed, collection.rollouts.filter(status="queued").count()) == (2, 6)


def test_a_collection_below_its_limits_goes_on():
    collection = plan(max_tokens=101, max_cost=0.6)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=Slots(1))
    record([end(claims[0], input_tokens=60, output_tokens=40, cost=0.5)])
    collection.refresh_from_db()
    assert (collection.state, collection.cost) == ("running", 0.5)


def test_a_limit_that_is_reached_with_the_last_rollout_does_not_keep_it_from_its_end():
    collection = plan(max_tokens=1)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    record([end(claim, input_tokens=5) for claim in claims])
    collection.refresh_from_db()
    assert (collection.state, collection.pause_reason) == ("completed", "")


def test_a_paused_collection_finishes_running_rollouts():
    collection = plan(max_tokens=5)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    record([end(claims[0], input_tokens=5)])
    collection.refresh_from_db()
    assert collection.state == "paused"
    record([end(claim) for claim in claims[1:]])
    collection.refresh_from_db()
    assert (collection.state, collection.completed) == ("completed", 8)


def test_time_counts_from_the_first_claim():
    collection, waiting = plan(max_seconds=60), plan(max_seconds=60)
    Collection.objects.filter(pk=collection.pk).update(started_at=timezone.now() - timedelta(seconds=61))
    assert pause_overdue() == [collection.pk]
    assert pause_overdue() == []
    collection.refresh_from_db()
    waiting.refresh_from_db()
    assert (collection.state, collection.pause_reason, waiting.state) == ("paused", "max_seconds", "running")


def test_a_spent_limit_must_be_raised_before_the_collection_goes_on():
    collection = plan(max_tokens=10)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=Slots(1))
    record([end(claims[0], output_tokens=10)])
    with pytest.raises(CannotSteer, match="the token limit is reached: raise or remove"):
        resume_collection(collection=collection)
    adjust_collection(collection=collection, changes={"max_tokens": 1000})
    assert resume_collection(collection=collection).state == "running"


def test_limits_that_cannot_be_are_refused_by_name():
    with pytest.raises(ValidationError) as refusal:
        plan(max_attempts=0, max_cost=-1.0, concurrency=0, rollout_timeout=0)
    assert set(refusal.value.message_dict) == {"max_attempts", "max_cost", "concurrency", "rollout_timeout"}


def test_the_wall_time_of_a_rollout_is_its_own_limit(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]

    async def never(request):
        await asyncio.sleep(60)

    async def collect():
        runner, port = await serve_chat(never)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", call_timeout=60
        )
        collection = await sync_to_async(plan)(model=model, repeats=1, rollout_timeout=0.3, max_attempts=5)
        await finish_collection(collection, progress=lambda _: None)
        await runner.cleanup()

    async_to_sync(collect)()
    ended = Rollout.objects.values_list("status", "error_kind", "reward", "attempt")
    assert set(ended) == {("failed", "timed_out", None, 1)}
    [message] = set(Rollout.objects.values_list("error_message", flat=True))
    assert "limit of 0.3 s" in message


def claim(worker, *, seats=64, group=""):
    """What a worker claims that runs nothing it knows of, by collection."""
    slots = InUse([], lease=worker.pk, claiming=[], group=group).slots(seats, {}, Reservations().read(worker.pk, {}))
    return Counter(claim.collection_id for claim in claim_rollouts(lease=worker.pk, slots=slots))


def test_the_limit_of_a_running_collection_is_one_for_all_workers():
    collection = plan(repeats=10, concurrency=5)
    one, other, third = (take_lease(seats=64) for _ in range(3))
    assert (claim(one, seats=2)[collection.pk], claim(other)[collection.pk], claim(third)[collection.pk]) == (2, 3, 0)
    assert collection.rollouts.filter(status="running").count() == 5


def test_a_worker_that_joins_or_drains_changes_no_limit():
    """What others run is counted, whatever became of them: a share of the limit would be exceeded while they end it."""
    model = make_policy_model(concurrency=4)
    plan(model=model, repeats=10)
    first = take_lease(seats=64)
    assert claim(first, seats=3).total() == 3
    drain_lease(worker_id=first.pk)
    assert claim(take_lease(seats=64)).total() == 1
    assert claim(take_lease(seats=64)).total() == 0


def test_a_worker_without_a_free_seat_keeps_nothing_from_the_others():
    """The older one is full: what is urgent and may run once at a time runs with the other."""
    plan(repeats=1)
    full, free = take_lease(seats=1), take_lease(seats=32)
    assert claim(full, seats=1).total() == 1
    urgent = plan(concurrency=1, priority=-10)
    assert claim(free, seats=32)[urgent.pk] == 1


def test_what_waits_to_be_stored_takes_no_room():
    """A worker knows which of its rollouts still run; the database hears of it a moment later."""
    plan(repeats=10, concurrency=5)
    worker = take_lease(seats=64)
    assert claim(worker).total() == 5
    assert claim(worker).total() == 5


def spent(max_tokens=None, max_cost=None, *, tokens=0, cost=0.0, completed=0):
    return Budget(max_tokens, max_cost, tokens, 0, 0, cost, completed)


@pytest.mark.parametrize(
    ("budget", "room"),
    [
        (spent(1_000), FIRST_CLAIM),
        (spent(1_000, tokens=10, completed=1), FIRST_CLAIM + 1),
        (spent(1_000, tokens=500, completed=10), 10),
        (spent(1_000, tokens=960, completed=10), 1),
        (spent(1_000, tokens=1_000, completed=10), 1),
        (spent(max_cost=1.0, cost=0.75, completed=30), 10),
        (spent(1_000, 1.0, tokens=100, cost=0.875, completed=70), 10),
        (spent(max_cost=1.0, completed=7), FIRST_CLAIM + 7),
        (spent(1_000, tokens=900), 1),
        (spent(max_cost=0.0), FIRST_CLAIM),
    ],
)
def test_as_many_are_in_flight_as_the_rest_of_a_budget_is_expected_to_pay_for(budget, room):
    assert rollouts_within_budget(budget) == room


def test_a_budget_is_shared_and_counts_unstored_results():
    collection = plan(repeats=10, max_tokens=10_000)
    Collection.objects.filter(pk=collection.pk).update(completed=10, input_tokens=5_000)
    one, other = take_lease(seats=64), take_lease(seats=64)
    unstored = InUse([], lease=one.pk, claiming=[], unstored={collection.pk: 4})
    slots = unstored.slots(64, {}, Reservations().read(one.pk, {}))
    assert (len(claim_rollouts(lease=one.pk, slots=slots)), unstored.awaits_results) == (6, True)
    assert claim(other).total() == 4


def test_only_collections_with_a_budget_are_held_to_one(django_assert_num_queries):
    free, limited = plan(repeats=20), plan(repeats=20, max_tokens=10_000, concurrency=50)
    worker = take_lease(seats=64)
    in_use = InUse([], lease=worker.pk, claiming=[], unstored={free.pk: 3})
    with django_assert_num_queries(1):
        slots = in_use.slots(64, {})
    assert (slots.collections, in_use.awaits_results) == ({limited.pk: FIRST_CLAIM}, False)


@pytest.mark.parametrize("worth", [0.5, 12])
def test_a_budget_is_exceeded_by_at_most_the_running_rollouts(worth, settings):
    """With seats for all of them at once. `worth` is the budget, in rollouts."""
    settings.WORKER_SEATS = 64
    model = make_policy_model(mistake_rate=0.0)
    measured = async_to_sync(finish_collection)(plan(model=model), progress=lambda _: None)
    mean = (measured.input_tokens + measured.output_tokens) / measured.completed
    limited = plan(model=model, repeats=50, max_tokens=int(worth * mean))
    ended = async_to_sync(finish_collection)(limited, progress=lambda _: None)
    used = ended.input_tokens + ended.output_tokens
    assert (ended.state, ended.pause_reason) == ("paused", "max_tokens")
    assert ended.max_tokens <= used <= ended.max_tokens + FIRST_CLAIM * mean


def test_prices_make_a_cost():
    model = make_policy_model(mistake_rate=0.0, input_price=2.0, output_price=8.0)
    collection = async_to_sync(finish_collection)(plan(model=model), progress=lambda _: None)
    expected = (collection.input_tokens * 2 + collection.output_tokens * 8) / 1e6
    assert collection.cost == pytest.approx(expected)
    assert sum(Rollout.objects.values_list("cost", flat=True)) == pytest.approx(expected)
    assert expected > 0


def test_a_model_that_several_groups_use_is_shared_by_all_their_workers():
    """One of its environments belongs to the group `gpu`, the other to none."""
    model = make_policy_model(concurrency=6)
    ordinary, special = plan(model=model, repeats=5), plan(model=model, repeats=5)
    elsewhere = make_environment(worker_group="gpu")
    Collection.objects.filter(pk=special.pk).update(environment=elsewhere)
    taken = [claim(take_lease(seats=64, group=group), seats=2, group=group) for group in ("", "gpu", "gpu", "gpu")]
    assert taken == [{ordinary.pk: 2}, {special.pk: 2}, {special.pk: 2}, {}]


def test_a_worker_of_a_group_leaves_the_rest_to_the_others():
    plan(model=make_policy_model(worker_group="gpu"))
    plan(model=make_policy_model())
    lease = take_lease(seats=64, group="tpu").pk
    slots = InUse([], lease=lease, claiming=[(lease, "tpu")], group="tpu").slots(64, {})
    assert claim_rollouts(lease=lease, slots=slots) == []


def test_a_model_and_an_environment_of_different_groups_cannot_be_planned_together():
    dataset = make_dataset(environment=make_environment(worker_group="cpu"))
    with pytest.raises(ValidationError, match="different worker groups \\(cpu and gpu\\)"):
        plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=make_policy_model(worker_group="gpu")))
