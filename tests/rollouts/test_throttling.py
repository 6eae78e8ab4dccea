"""A throttled endpoint makes its rollouts wait: no try, attempt or time limit is used up. An exhausted quota pauses."""

import asyncio
import time
from collections import Counter, deque
from datetime import timedelta
from email.utils import format_datetime

import orjson
import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from apps.gym.calls.rate_control import Report
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.claimed_work import read_updates
from apps.rollouts.engine.throttling import exchange
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Breaker, Collection, Rollout, Throttle
from apps.rollouts.steering.controls import resume_collection
from apps.rollouts.steering.holds import explain_pause, find_holds
from tests.factories import make_environment, make_policy_model
from tests.rollouts.work import plan, serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.BREAKER_FAILURES = 3
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def reply(text="\\boxed{0}"):
    message = {"role": "assistant", "content": text}
    return web.json_response({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})


def refuse(status=429, code="rate_limit_exceeded", **headers):
    error = {"message": "Slow down, please.", "type": code, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


class Closed:
    """A model that refuses all calls for `seconds` from its first one."""

    def __init__(self, seconds, refusal):
        self.seconds = seconds
        self.refusal = refusal
        self.began = 0.0
        self.refused = self.calls = 0

    async def answer(self, request):
        now = asyncio.get_running_loop().time()
        self.began = self.began or now
        self.calls += 1
        if now - self.began < self.seconds:
            self.refused += 1
            return self.refusal()
        return reply()


class Window:
    """A model that takes `number` calls in each second and names the next second."""

    def __init__(self, number):
        self.number = number
        self.second, self.taken, self.refused = 0, 0, 0
        self.served = deque()

    async def answer(self, request):
        now = asyncio.get_running_loop().time()
        if int(now) != self.second:
            self.second, self.taken = int(now), 0
        if self.taken >= self.number:
            self.refused += 1
            return refuse(**{"Retry-After": "1"})
        self.taken += 1
        self.served.append(now)
        return reply()


async def start(answer, *, seats=64, model=(), **fields):
    """A worker that runs a collection of a model on loopback."""
    runner, port = await serve_chat(answer)
    given = {"provider": "compatible", "base_url": f"http://127.0.0.1:{port}/v1", "model_name": "x", "max_tries": 1}
    policy_model = await sync_to_async(make_policy_model)(**{**given, **dict(model)})
    collection = await sync_to_async(plan)(model=policy_model, max_attempts=1, **fields)
    worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=seats)
    working = asyncio.create_task(worker.handle())

    async def stop():
        worker.stop()
        await working
        await runner.cleanup()

    return collection, stop


async def wait_for(collection, *states, seconds=60):
    async with asyncio.timeout(seconds):
        while (await Collection.objects.aget(pk=collection.pk)).state not in states:
            await asyncio.sleep(0.05)


def collect(answer, **given):
    async def run():
        collection, stop = await start(answer, **given)
        try:
            await wait_for(collection, "completed")
        finally:
            await stop()
        return collection

    return async_to_sync(run)()


def read_throttled():
    return read_updates(lease=1, running=Counter(), reports={}).throttled


def assert_untouched(collection):
    """Every rollout completed in its first attempt with its first try, and nothing counts as a failure."""
    collection.refresh_from_db()
    assert (collection.completed, collection.failed, collection.retried) == (collection.total, 0, 0)
    assert set(Rollout.objects.values_list("status", "attempt", "failures", "reward")) <= {
        ("completed", 1, 0, 0.0),
        ("completed", 1, 0, 1.0),
        ("completed", 1, 0, 0.8),
    }
    for rollout in Rollout.objects.all():
        calls = [event for event in rollout.trace() if type(event).__name__ in ("ModelCall", "JudgeCall")]
        assert [call.retries for call in calls] == [0] * len(calls)
    assert not Breaker.objects.exclude(state="closed").exists()


def test_a_window_of_five_calls_a_second_fails_no_rollout_and_is_used():
    """make test-faults measures how much of it is used, on a machine of its own."""
    model = Window(5)
    collection = collect(model.answer, repeats=10)
    assert_untouched(collection)
    assert len(model.served) == 40
    rate = (len(model.served) - 5) / (model.served[-1] - model.served[0])
    assert rate >= 0.5 * 5
    assert Endpoint("policy_model", collection.policy_model_id) in read_throttled()


@pytest.mark.parametrize(
    "refusal",
    [
        lambda: refuse(**{"Retry-After": "1"}),
        lambda: refuse(**{"retry-after-ms": "400"}),
        refuse,
        lambda: refuse(503, **{"Retry-After": "1"}),
        lambda: refuse(**{"Retry-After": format_datetime(timezone.now() + timedelta(seconds=1), usegmt=True)}),
    ],
    ids=["seconds", "milliseconds", "none", "503", "date"],
)
def test_a_model_that_only_throttles_for_a_while_fails_nothing(refusal):
    model = Closed(2.0, refusal)
    collection = collect(model.answer, repeats=1)
    assert_untouched(collection)
    assert model.refused >= 1


def test_waiting_uses_up_no_time_of_the_call_the_agent_or_the_rollout():
    model = Closed(3.0, lambda: refuse(**{"Retry-After": "1"}))
    collection = collect(model.answer, repeats=1, rollout_timeout=1.5, model={"call_timeout": 1.0})
    assert_untouched(collection)
    assert all(rollout.duration < 1.5 and rollout.model_time < 1.5 for rollout in Rollout.objects.all())


def test_a_503_that_names_no_time_is_a_failure_as_before():
    model = Closed(1e9, lambda: refuse(503))

    async def run():
        collection, stop = await start(model.answer, repeats=1, limit=1)
        await wait_for(collection, "completed")
        await stop()

    async_to_sync(run)()
    assert Rollout.objects.get().error_kind == "policy_error"


def test_a_throttled_judge_makes_verification_wait():
    verdict = {"score": 8, "explanation": "Good."}

    class Judge(Closed):
        async def answer(self, request):
            answered = await super().answer(request)
            if answered.status != 200:
                return answered
            asked = await request.read()
            mark = asked.split(b"<task-", 1)[1][:8].decode()
            return reply(orjson.dumps({"mark": mark, **verdict}).decode())

    async def run():
        judge = Judge(2.5, lambda: refuse(**{"Retry-After": "1"}))
        runner, port = await serve_chat(judge.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        environment = await sync_to_async(make_environment)(
            slug="judged", builtin="judged", judge_model=model, verify_timeout=1.0
        )
        collection, stop = await start(
            Closed(0.0, refuse).answer, repeats=1, environment=environment.slug, rollout_timeout=1.5
        )
        await wait_for(collection, "completed")
        await stop()
        await runner.cleanup()
        return collection, judge

    collection, judge = async_to_sync(run)()
    assert_untouched(collection)
    assert judge.refused > 0
    assert all(rollout.reward is not None and rollout.verify_time < 1.5 for rollout in Rollout.objects.all())


def test_a_long_pause_puts_attempts_back_without_counting_them_and_says_until_when():
    model = Closed(1e9, lambda: refuse(**{"Retry-After": "7200"}))

    async def run():
        collection, stop = await start(model.answer, repeats=3)
        async with asyncio.timeout(30):
            while not await Throttle.objects.filter(paused_until__gt=timezone.now()).aexists():
                await asyncio.sleep(0.05)
            while await Rollout.objects.filter(status="running").aexists():
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        holds = await sync_to_async(lambda: [str(hold) for hold in find_holds(collection)])()
        calls = model.calls
        await stop()
        return holds, calls

    (hold,), calls = async_to_sync(run)()
    collection = Collection.objects.get()
    assert (collection.state, collection.failed, collection.completed) == ("running", 0, 0)
    assert set(Rollout.objects.values_list("status", "failures")) == {("queued", 0)}
    assert calls == collection.total  # those that were on their way, and none since
    assert "Throttled until" in hold
    assert "Slow down" in hold


@pytest.mark.parametrize(
    "refusal",
    [lambda: refuse(429, "insufficient_quota", **{"Retry-After": "1"}), lambda: refuse(402, "payment_required")],
    ids=["insufficient_quota", "402"],
)
def test_an_exhausted_quota_pauses_the_collection_until_resumed(refusal):
    model = Closed(1e9, refusal)

    async def run():
        collection, stop = await start(model.answer, repeats=5)
        await wait_for(collection, "paused")
        async with asyncio.timeout(30):
            while await Rollout.objects.filter(status="running").aexists():
                await asyncio.sleep(0.05)
        await collection.arefresh_from_db()
        paused = (collection.failed, collection.pause_reason, await sync_to_async(explain_pause)(collection))
        asked = model.calls
        model.seconds = 0.0
        await sync_to_async(resume_collection)(collection=collection)
        await wait_for(collection, "completed")
        await stop()
        return paused, asked

    (failed, reason, why), asked = async_to_sync(run)()
    assert (failed, reason) == (0, "quota")
    assert "Slow down, please." in why
    collection = Collection.objects.get()
    assert (collection.completed, collection.failed, collection.retried) == (collection.total, 0, 0)
    assert asked <= 3 * collection.total
    assert set(Rollout.objects.values_list("failures", flat=True)) == {0}


def test_two_workers_share_one_rate():
    endpoint = Endpoint("policy_model", make_policy_model().pk)
    first = exchange(endpoint, "a", Report(sent=[0.1] * 10, throttled=[0.1] * 5, retry_after=0.0, wanted=5), "slow")
    assert (first.limited, first.starts) == (True, [])
    assert read_throttled() == [endpoint]
    over = time.time() - 0.01
    Throttle.objects.update(control={**Throttle.objects.get().control, "paused_until": over, "growing_since": over})
    given = [exchange(endpoint, holder, Report(wanted=50)).starts for holder in ("a", "b")]
    # Five calls were accepted in a second: starts for one more second, for both together.
    assert 1 <= len(given[0] + given[1]) <= 6
