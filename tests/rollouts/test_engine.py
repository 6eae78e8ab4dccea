"""The engine on a real database: planned rows are claimed, run and recorded once."""

import asyncio
from datetime import timedelta
from io import BytesIO

import msgspec
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from apps.environments.models import Environment
from apps.gym.traces.events import ErrorRaised, ModelCall, Prompt, ToolResult, Verification
from apps.gym.traces.items import message, text_of
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.engine.claiming import Claim, Slots, claim_rollouts
from apps.rollouts.engine.outbox import Outbox
from apps.rollouts.engine.recording import End, record_batch
from apps.rollouts.engine.running import RolloutStats, _end
from apps.rollouts.engine.shared_limits import Share
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.engine.worker_leases import Vitals, reap_leases, release_lease, renew_lease, take_lease
from apps.rollouts.models import Collection, Rollout, TraceEvent, Worker
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import PlanConflict, plan_collection, sweep_plans
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.rollouts.steering.controls import adjust_collection, cancel_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE, wait_until_async
from tests.factories import make_agent, make_dataset, make_policy_model, make_row
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.usefixtures("migrated")

NO_LIMITS = Slots(64, {}, {})


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 5


def plan(rows=None, environment="calculator", repeats=2, model=None, **fields):
    rows = rows or [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(4)]
    dataset = make_dataset(rows, environment=Environment.objects.get(slug=environment))
    model = model or make_policy_model(mistake_rate=0.0)
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=repeats, **fields))


def finish(collection, seats=None):
    return async_to_sync(finish_collection)(collection, progress=lambda _: None, seats=seats)


def ends(claims, reward):
    return [
        End(
            id=claim.rollout_id,
            lease=claim.lease,
            collection=claim.collection_id,
            attempt=claim.attempt,
            status="completed",
            reward=reward,
            stop_reason="answered",
        )
        for claim in claims
    ]


def record(given):
    return record_batch(events=[], ends=given, now=timezone.now())


def expire(worker):
    Worker.objects.filter(pk=worker.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def test_a_collection_runs_to_its_end_with_rewards_and_traces():
    collection = finish(plan())
    assert (collection.state, collection.completed, collection.failed, collection.mean_reward) == (
        "completed",
        8,
        0,
        1.0,
    )
    for rollout in Rollout.objects.all():
        trace = rollout.trace()
        assert (rollout.status, rollout.stop_reason, rollout.lease) == ("completed", "answered", None)
        assert rollout.turns == sum(isinstance(event, ModelCall) for event in trace)
        assert rollout.tool_calls == sum(isinstance(event, ToolResult) for event in trace)
        assert isinstance(trace[1], Prompt)
        assert isinstance(trace[-1], Verification)
    assert Worker.objects.get().state == "stopped"


def test_the_same_seed_gives_the_same_rewards():
    rewards = []
    for _ in range(2):
        collection = finish(plan(model=make_policy_model(mistake_rate=0.5), repeats=6, seed=11))
        rewards.append(list(collection.rollouts.order_by("task__index", "repeat").values_list("reward", flat=True)))
    assert rewards[0] == rewards[1]
    assert {0.0, 1.0} <= set(rewards[0])


def test_planning_twice_with_one_key_makes_one_collection():
    dataset, agent, model = make_dataset(), make_agent(), make_policy_model()
    plans = [
        plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model), idempotency_key="k") for _ in range(2)
    ]
    assert plans[0] == plans[1]
    assert Rollout.objects.count() == 3


def test_a_dataset_without_tasks_cannot_be_planned():
    with pytest.raises(NothingToCollect, match="no version"):
        empty = make_dataset()
        empty.versions.update(state="loading")
        plan_collection(Plan(dataset=empty, agent=make_agent(), policy_model=make_policy_model()))


def test_a_claim_takes_each_row_once_and_keeps_to_the_slots():
    collection = plan(repeats=3)
    one, two = take_lease(seats=64), take_lease(seats=64)
    model = {collection.policy_model_id: 5}
    first = claim_rollouts(lease=one.pk, slots=Slots(64, model, {}))
    second = claim_rollouts(lease=two.pk, slots=NO_LIMITS)
    assert (len(first), len(second)) == (5, 7)
    assert not {claim.rollout_id for claim in first} & {claim.rollout_id for claim in second}
    assert {claim.attempt for claim in [*first, *second]} == {1}


def test_smaller_priority_is_claimed_first():
    plan(repeats=1, priority=5)
    urgent = plan(repeats=1, priority=-1)
    claims = claim_rollouts(lease=take_lease(seats=4).pk, slots=Slots(4, {}, {}))
    assert {claim.collection_id for claim in claims} == {urgent.pk}


def test_a_zombie_worker_cannot_complete_a_rollout():
    collection = plan(repeats=1)
    zombie = take_lease(seats=8)
    stale = claim_rollouts(lease=zombie.pk, slots=NO_LIMITS)
    expire(zombie)
    assert reap_leases() == 1
    assert renew_lease(worker_id=zombie.pk, vitals=Vitals(busy=4)) is False
    heir = take_lease(seats=8)
    fresh = claim_rollouts(lease=heir.pk, slots=NO_LIMITS)
    assert {claim.attempt for claim in fresh} == {2}

    assert record(ends(stale, 0.0)) == set()
    assert record(ends(fresh, 1.0)) == {collection.pk}
    assert record(ends(fresh, 0.0)) == set()
    collection.refresh_from_db()
    assert (collection.state, collection.completed, collection.mean_reward) == ("completed", 4, 1.0)


def test_the_third_loss_of_its_worker_fails_a_rollout():
    collection = plan(rows=[make_row()], repeats=1)
    for _ in range(3):
        worker = take_lease(seats=1)
        assert len(claim_rollouts(lease=worker.pk, slots=NO_LIMITS)) == 1
        expire(worker)
        reap_leases()
    rollout = Rollout.objects.get()
    assert (rollout.status, rollout.error_kind, rollout.reward, rollout.lost) == ("failed", "worker_lost", None, 3)
    collection.refresh_from_db()
    assert (collection.state, collection.failed) == ("completed", 1)


def test_a_worker_that_leaves_gives_its_rollouts_back():
    plan(repeats=1)
    worker = take_lease(seats=8)
    claim_rollouts(lease=worker.pk, slots=NO_LIMITS)
    assert release_lease(worker_id=worker.pk) == 4
    assert set(Rollout.objects.values_list("status", "lease")) == {("queued", None)}


def test_cancelling_drops_queued_rollouts_and_counts_them_once():
    collection = plan()
    for _ in range(2):
        cancel_collection(collection=collection)
    collection.refresh_from_db()
    assert (collection.state, collection.cancelled, collection.ended) == ("cancelled", 8, 8)
    assert claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS) == []


def test_cancelling_ends_running_calls_though_the_worker_was_idle_before(settings, monkeypatch):
    monkeypatch.setattr("apps.rollouts.engine.worker.IDLE_SECONDS", 3600.0)
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    cut = []

    async def never(request):
        try:
            await asyncio.sleep(10 * DEADLINE)
        except asyncio.CancelledError:
            cut.append(request)
            raise

    async def cancel_when_running():
        runner, port = await serve_chat(never)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", call_timeout=600
        )
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        await wait_until_async(lambda: bool(worker.lease))
        await asyncio.sleep(1.5)
        collection = await sync_to_async(plan)(model=model, repeats=1)
        while await TraceEvent.objects.filter(kind="prompt").acount() < 4:
            await asyncio.sleep(0.05)
        await sync_to_async(cancel_collection)(collection=collection)
        async with asyncio.timeout(DEADLINE):
            while len(cut) < 4 or await Rollout.objects.exclude(status="cancelled").acount():
                await asyncio.sleep(0.02)
        worker.stop()
        await working
        await runner.cleanup()

    async_to_sync(cancel_when_running)()
    collection = Collection.objects.get()
    assert (collection.state, collection.cancelled, collection.ended) == ("cancelled", 4, 4)


def test_an_unreachable_model_is_an_error_and_never_a_reward(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    model = PolicyModel.objects.create(
        slug="gone", name="gone", base_url="http://127.0.0.1:9/v1", model_name="x", max_tries=1
    )
    # Two rollouts, whose attempts fail less often in a row than opens a breaker: then, rollouts wait.
    collection = finish(plan([make_row("What is 2 * 3?"), make_row("What is 3 * 3?")], model=model, repeats=1))
    assert (collection.completed, collection.failed, collection.rewarded) == (0, 2, 0)
    rollout = Rollout.objects.first()
    assert (rollout.error_kind, rollout.reward) == ("policy_error", None)
    assert isinstance(rollout.trace()[-1], ErrorRaised)
    assert isinstance(rollout.trace()[1], Prompt)


def test_two_workers_share_the_work_and_write_each_trace_once():
    collection = plan(repeats=20)

    async def both():
        workers = [RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=16) for _ in range(2)]
        working = [asyncio.create_task(worker.handle()) for worker in workers]
        while not (await Collection.objects.aget(pk=collection.pk)).is_finished:
            await asyncio.sleep(0.05)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)

    async_to_sync(both)()
    collection.refresh_from_db()
    assert (collection.completed, Rollout.objects.filter(status="completed", attempt=1).count()) == (80, 80)
    for rollout in Rollout.objects.all():
        kinds = list(TraceEvent.objects.filter(rollout=rollout).order_by("seq").values_list("kind", flat=True))
        assert (kinds[0], kinds[-1], kinds.count("verification")) == ("session", "verification", 1)


def test_the_embedded_scripted_model_says_what_it_is():
    collection = finish(plan(rows=[make_row()], repeats=1, model=make_policy_model(provider=Provider.SCRIPTED)))
    call = next(event for event in collection.rollouts.get().trace() if isinstance(event, ModelCall))
    assert call.model == "scripted, no LLM"


def test_an_uploaded_file_is_collected_unchanged():
    from apps.tasks.dataset_changes import create_dataset
    from apps.tasks.upload_jobs import upload_file

    dataset = create_dataset(slug="up", name="Up", environment=Environment.objects.get(slug="calculator"))
    line = b'{"responses_create_params": {"input": "What is 5 * 5?"}, "expected_answer": "25"}\n'
    assert upload_file(dataset=dataset, stream=BytesIO(line), filename="a.jsonl").state == "ready"
    model = make_policy_model(mistake_rate=0.0)
    collection = finish(plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model)))
    assert collection.mean_reward == 1.0


def test_a_plan_that_breaks_half_way_leaves_nothing(monkeypatch):
    from apps.rollouts.plans import planning

    monkeypatch.setattr(planning, "CHUNK", 3)
    store = planning._queue
    stored = []

    def breaks_at_the_second(collection, chunk):
        if stored:
            raise OSError("disk full")
        stored.append(chunk)
        store(collection, chunk)

    monkeypatch.setattr(planning, "_queue", breaks_at_the_second)
    with pytest.raises(OSError, match="disk full"):
        plan()
    assert (Collection.objects.count(), Rollout.objects.count()) == (0, 0)


def test_a_plan_whose_planner_died_is_swept_and_a_young_one_is_not():
    dead, young = plan(), plan()
    Collection.objects.filter(pk=young.pk).update(state="planning")
    Collection.objects.filter(pk=dead.pk).update(state="planning", touched_at=timezone.now() - timedelta(hours=1))
    assert [sweep_plans(), sweep_plans()] == [True, False]
    assert set(Rollout.objects.values_list("collection_id", flat=True)) == {young.pk}


def test_cancelling_while_planning_cancels_later_rollouts(monkeypatch):
    from apps.rollouts.plans import planning

    monkeypatch.setattr(planning, "CHUNK", 3)
    store = planning._queue

    def then_cancel(collection, chunk):
        store(collection, chunk)
        cancel_collection(collection=collection)

    monkeypatch.setattr(planning, "_queue", then_cancel)
    collection = plan()
    assert (collection.state, collection.total, collection.cancelled) == ("cancelled", 8, 8)
    assert set(Rollout.objects.values_list("status", flat=True)) == {"cancelled"}


def test_a_worker_whose_lease_was_taken_begins_again_under_another():
    collection = plan(repeats=1)

    async def lose_it():
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        while not worker.lease:
            await asyncio.sleep(0.01)
        first = worker.lease
        worker._lease_lost(first)
        async with asyncio.timeout(DEADLINE):
            while not (await Collection.objects.aget(pk=collection.pk)).is_finished:
                await sync_to_async(reap_leases)()
                await Worker.objects.filter(pk=first).aupdate(state="lost")
                await asyncio.sleep(0.05)
        second = worker.lease
        worker.stop()
        await working
        return first, second

    first, second = async_to_sync(lose_it)()
    collection.refresh_from_db()
    assert second > first
    assert (collection.completed, collection.mean_reward) == (4, 1.0)


def test_a_worker_that_slept_past_its_lease_claims_nothing():
    plan()
    sleeper = take_lease(seats=8)
    expire(sleeper)
    assert claim_rollouts(lease=sleeper.pk, slots=NO_LIMITS) == []
    reap_leases()
    assert claim_rollouts(lease=sleeper.pk, slots=NO_LIMITS) == []


def test_a_batch_that_is_sent_again_after_it_was_stored_changes_nothing():
    collection = plan()
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    events = [(claim.rollout_id, claim.attempt, seq, "prompt", "{}", None) for claim in claims for seq in (0, 1)]
    batch = {"events": events, "ends": ends(claims[:4], 1.0), "now": timezone.now()}
    assert record_batch(**batch) == {collection.pk}
    assert record_batch(**batch, may_be_stored=True) == set()
    collection.refresh_from_db()
    assert (collection.completed, collection.reward_sum, TraceEvent.objects.count()) == (4, 4.0, len(events))


def test_both_attempts_of_a_rollout_in_one_batch_count_once():
    collection = plan(rows=[make_row()], repeats=1)
    lost, heir = take_lease(seats=1), take_lease(seats=1)
    first = claim_rollouts(lease=lost.pk, slots=NO_LIMITS)
    expire(lost)
    reap_leases()
    second = claim_rollouts(lease=heir.pk, slots=NO_LIMITS)
    record([*ends(first, 0.0), *ends(second, 1.0)])
    collection.refresh_from_db()
    assert (collection.completed, collection.reward_sum, collection.state) == (1, 1.0, "completed")


def test_the_ends_of_two_leases_are_stored_from_one_outbox():
    collection = plan(repeats=2)
    leases = [take_lease(seats=4), take_lease(seats=4)]
    claims = [claim_rollouts(lease=lease.pk, slots=Slots(4, {}, {})) for lease in leases]
    mixed = [end for pair in zip(ends(claims[0], 1.0), ends(claims[1], 1.0), strict=True) for end in pair]
    assert store(mixed) == []
    collection.refresh_from_db()
    assert (collection.completed, collection.state) == (8, "completed")


def test_an_end_after_the_first_of_an_attempt_is_too_late():
    collection = plan(rows=[make_row()], repeats=1)
    (end,) = ends(claim_rollouts(lease=take_lease(seats=1).pk, slots=NO_LIMITS), 1.0)
    store([end, msgspec.structs.replace(end, status="cancelled", reward=None)])
    collection.refresh_from_db()
    assert (collection.completed, collection.cancelled) == (1, 0)


@pytest.mark.parametrize("poison", [{"turns": -1}, {"output_tokens": 10**20}])
def test_an_end_that_the_database_refuses_fails_alone(poison):
    collection = plan(repeats=1)
    good = ends(claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS), 1.0)
    store([msgspec.structs.replace(good[0], **poison), *good[1:]])
    collection.refresh_from_db()
    assert (collection.completed, collection.failed, collection.state) == (3, 1, "completed")
    assert "could not be stored" in Rollout.objects.get(status="failed").error_message


def store(given):
    """Through an outbox; gives what is left in it."""

    async def run():
        outbox = Outbox(in_database=lambda work, **kwargs: sync_to_async(work)(**kwargs), changed=lambda _: None)
        for end in given:
            outbox.add_end(end)
        outbox.stop()
        await outbox.run()
        return list(outbox._ends)

    return async_to_sync(run)()


def test_counts_and_texts_of_an_endpoint_are_made_storable():
    tally = RolloutStats()
    usage = {"input_tokens": 10**20, "output_tokens": -5}
    tally.add(ModelCall(seen=0, items=[], usage=usage))
    tally.add(Verification(reward=1.0, components={"a\0b": 1.0}, stop_reason="answered"))
    end = _end(Claim(1, 2, 3, 4, 0, 0, 1, 0, 0), tally, None, 0.1)
    assert (end.input_tokens, end.output_tokens, end.components) == (2**31 - 1, 0, {"a\ufffdb": 1.0})


@pytest.mark.parametrize("title", [1, 2])
def test_the_answer_of_a_captured_agent_is_not_its_generated_title(title):
    tally, main = RolloutStats(), 3 - title

    def add(call, lineage, text, **fields):
        tally.add(ModelCall(seen=0, items=[message("assistant", text)], call=call, lineage=lineage, **fields))

    add(1, 1, "first", root_reason="first")
    add(2, 2, "second", root_reason="first")
    add(3, 3, "of a subagent", root_reason="subagent", spawned_by=main)
    add(4, main, "the answer", parent=main)
    add(5, 3, "of a subagent", parent=3)
    tally.counts()
    assert text_of(tally.last_reply[0]) == "the answer"


def test_shares_of_a_limit_add_up_to_it():
    live = [11, 12, 13]
    assert [Share.of(lease, live).part(10) for lease in live] == [4, 3, 3]
    assert [Share.of(lease, live).part(1) for lease in live] == [1, 0, 0]
    assert Share.of(99, []).part(7) == 7


def test_an_idempotency_key_identifies_one_plan():
    dataset, agent, model = make_dataset(), make_agent(), make_policy_model()
    plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model), idempotency_key="k")
    with pytest.raises(PlanConflict, match="another plan"):
        plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, repeats=2), idempotency_key="k")


def test_a_key_matches_its_request_after_limits_changed():
    asked = {"dataset": make_dataset(), "agent": make_agent(), "policy_model": make_policy_model()}
    first = plan_collection(Plan(**asked), idempotency_key="k")
    adjust_collection(collection=first, changes={"priority": 5, "concurrency": 7})
    assert plan_collection(Plan(**asked), idempotency_key="k") == first


def test_a_plan_whose_planner_died_is_made_anew_when_it_is_asked_for_again():
    asked = {"dataset": make_dataset(), "agent": make_agent(), "policy_model": make_policy_model()}
    dead = plan_collection(Plan(**asked), idempotency_key="k")
    Collection.objects.filter(pk=dead.pk).update(state="planning")
    assert plan_collection(Plan(**asked), idempotency_key="k") == dead  # its planner may still be at it
    Collection.objects.filter(pk=dead.pk).update(touched_at=timezone.now() - timedelta(seconds=90))
    again = plan_collection(Plan(**asked), idempotency_key="k")
    assert (again.pk != dead.pk, again.state, again.total) == (True, "running", 3)
    assert Collection.objects.filter(idempotency_key="k").count() == 1


def test_a_wait_for_a_worker_that_died_ends():
    collection = plan(repeats=1)
    ghost = take_lease(seats=8)
    claim_rollouts(lease=ghost.pk, slots=NO_LIMITS)
    Worker.objects.filter(pk=ghost.pk).update(lease_expires_at=timezone.now() + timedelta(seconds=1))
    assert finish(collection).completed == 4
