"""Circuit breakers: an endpoint that keeps failing holds its rollouts back instead of failing them."""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from apps.gym.calls.memory_budget import MemoryBudget, parked
from apps.gym.errors import PolicyError
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.circuit_breakers import (
    BreakerReport,
    Breakers,
    Endpoint,
    claim_breaker_test,
    read_open_breakers,
    store_reports,
)
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.claiming import Claim, claim_rollouts
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.rollout_listener import RolloutListener
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.engine.worker_leases import take_lease
from apps.rollouts.engine.worker_seats import WorkerSeats
from apps.rollouts.models import Breaker, Collection, Rollout
from apps.rollouts.steering.holds import find_holds
from tests.deadlines import DEADLINE
from tests.factories import make_environment, make_policy_model, make_row
from tests.rollouts.work import plan, serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.BREAKER_FAILURES = 3
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def test_failures_in_a_row_open_and_a_success_between_them_does_not():
    breakers, endpoint = Breakers(), Endpoint("policy_model", 1)
    for outcome in ("server_error", "timed_out", "ok", "unreachable", "refused", "throttled"):
        breakers.observe(endpoint, outcome, "no")
    with breakers.reports() as reports:
        assert (breakers.is_failing(endpoint, 1), reports) == (False, {})
    breakers.observe(endpoint, "unreachable", "gone")
    with breakers.reports() as reports:
        assert (breakers.is_failing(endpoint, 1), reports) == (True, {endpoint: BreakerReport(False, 3, "gone")})


@pytest.mark.parametrize("outcome", ["server_error", "malformed", "unreachable", "timed_out", "refused"])
@pytest.mark.parametrize("seconds", [0.0, 6.0])
@pytest.mark.parametrize("answered", [1, 2])
def test_error_replies_open_nothing_while_the_endpoint_answers_only_others(monkeypatch, outcome, seconds, answered):
    breakers = Breakers()
    breakers.observe(ENDPOINT, "ok", "", 1, answered)
    later = time.monotonic() + seconds
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.time.monotonic", lambda: later)
    for rollout in range(20):
        breakers.observe(ENDPOINT, outcome, "no", rollout, 1)
    is_reply = outcome in {"server_error", "malformed"}
    assert breakers.is_failing(ENDPOINT, 99) == (not is_reply or seconds > 5 or answered == 1)


def test_turns_that_could_not_be_stored_are_kept_unless_newer_ones_came():
    breakers, endpoint, other = Breakers(), Endpoint("policy_model", 1), Endpoint("environment", 1)
    for one in (endpoint, other, endpoint, other, endpoint, other):
        breakers.observe(one, "malformed", "old")
    with suppress(OSError), breakers.reports() as reports:
        assert reports == {endpoint: BreakerReport(False, 3, "old"), other: BreakerReport(False, 3, "old")}
        breakers.set_open([endpoint])
        breakers.observe(endpoint, "ok", "")
        raise OSError
    with breakers.reports() as reports:
        assert reports == {endpoint: BreakerReport(True), other: BreakerReport(False, 3, "old")}
    with breakers.reports() as reports:
        assert reports == {}


def test_an_open_breaker_leaves_no_slots_until_a_rollout_tries_its_endpoint():
    collection = plan()
    endpoint = Endpoint("policy_model", collection.policy_model_id)
    store_reports({endpoint: BreakerReport(False, 3, "connection refused")})
    assert InUse([], lease=1, claiming=[(1, "")]).slots(8, read_open_breakers()).models == {endpoint.pk: 0}
    breaker = Breaker.objects.get()
    assert (breaker.state, breaker.failures, breaker.message) == ("open", 3, "connection refused")
    Breaker.objects.update(retry_at=timezone.now() - timedelta(seconds=1))
    shut = read_open_breakers()
    in_use = InUse([], lease=1, claiming=[(1, "")])
    assert in_use.slots(8, shut).models == {endpoint.pk: 1}
    in_use.claim_breaker_tests(shut, [])
    breaker.refresh_from_db()
    assert (breaker.state, breaker.cooldown) == ("open", 5.0)  # nothing was claimed, nothing is tried
    in_use.claim_breaker_tests(shut, [collection.pk])
    breaker.refresh_from_db()
    assert (breaker.state, breaker.cooldown) == ("half_open", 10.0)
    assert InUse([], lease=2, claiming=[(2, "")]).slots(8, read_open_breakers()).models == {endpoint.pk: 0}


def test_the_cooldown_doubles_up_to_a_minute_and_success_closes():
    collection = plan()
    endpoint = Endpoint("policy_model", collection.policy_model_id)
    store_reports({endpoint: BreakerReport(False, 3, "no")})
    cooldowns = []
    for _ in range(5):
        Breaker.objects.update(retry_at=timezone.now() - timedelta(seconds=1))
        assert claim_breaker_test(endpoint, read_open_breakers()[endpoint], collection.pk)
        store_reports({endpoint: BreakerReport(False, 4, "no")})
        cooldowns.append(Breaker.objects.get().cooldown)
    assert cooldowns == [10.0, 20.0, 40.0, 60.0, 60.0]
    store_reports({endpoint: BreakerReport(True)})
    assert (read_open_breakers(), Breaker.objects.get().state) == ({}, "closed")


ENDPOINT = Endpoint("policy_model", 1)


def failing_beside_others(breakers, *, gaps, rollout=7):
    """Calls of one rollout fail, and the endpoint answers another rollout in the first gaps."""
    for number in range(5):
        breakers.observe(ENDPOINT, "timed_out", "500", rollout)
        if number < gaps:
            breakers.observe(ENDPOINT, "ok", "", rollout + 1)


@pytest.mark.parametrize(("gaps", "opens"), [(0, True), (1, True), (2, False), (4, False)])
def test_a_rollout_that_fails_while_others_succeed_opens_nothing(gaps, opens):
    breakers = Breakers()
    failing_beside_others(breakers, gaps=gaps)
    with breakers.reports() as reports:
        assert reports == ({ENDPOINT: BreakerReport(False, 5 - gaps, "500", (7,))} if opens else {})
    breakers.set_open([ENDPOINT])
    assert (breakers.is_failing(ENDPOINT, 7), breakers.is_failing(ENDPOINT, 8)) == (opens, True)


def test_the_streak_of_a_rollout_ends_with_its_own_success_and_outages_suspect_nobody():
    breakers = Breakers()
    failing_beside_others(breakers, gaps=4)
    breakers.observe(ENDPOINT, "ok", "", 7)
    for rollout in (7, 8, 9):  # an outage, while all of them run
        for _ in range(3):
            breakers.observe(ENDPOINT, "unreachable", "refused", rollout)
    breakers.set_open([ENDPOINT])
    assert [breakers.is_failing(ENDPOINT, rollout) for rollout in (7, 8, 9)] == [True] * 3
    with breakers.reports() as reports:
        assert reports == {ENDPOINT: BreakerReport(False, 9, "refused", (9, 8, 7))}


def test_a_collection_that_only_fails_is_claimed_last_until_it_completes_a_rollout(monkeypatch):
    breakers, worker = Breakers(), take_lease(seats=8)
    first, second = plan(repeats=3, priority=1), plan(repeats=3, priority=2)
    assert breakers.failing_collections() == frozenset()

    def claimed():
        failing = breakers.failing_collections()
        slots = InUse([], lease=worker.pk, claiming=[(worker.pk, "")], failing=failing).slots(8, {})
        claims = claim_rollouts(lease=worker.pk, slots=slots)
        Rollout.objects.filter(pk__in=[one.rollout_id for one in claims]).update(status="queued", lease=None)
        return {one.collection_id for one in claims}

    for number in range(3):
        assert claimed() == {first.pk}
        breakers.observe(ENDPOINT, "server_error", "500", number, first.pk)
    assert claimed() == {second.pk}
    breakers.forgive(first.pk)
    assert claimed() == {first.pk}
    for _ in range(3):
        breakers.count_failure(first.pk)  # attempts that failed, whatever the cause
    assert claimed() == {second.pk}
    later = time.monotonic() + 61
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.time.monotonic", lambda: later)
    assert claimed() == {first.pk}


@pytest.mark.parametrize(("answers", "failing"), [(0, {1}), (4, {1}), (9, {1}), (10, set()), (19, set())])
def test_a_collection_whose_calls_mostly_succeed_is_not_claimed_last(answers, failing):
    """As with long rollouts of an unreliable model: none has completed yet."""
    breakers = Breakers()
    for rollout in range(50):
        breakers.observe(ENDPOINT, "server_error", "502", rollout, 1)
        for _ in range(answers):
            breakers.observe(ENDPOINT, "ok", "", rollout, 1)
    assert breakers.failing_collections() == failing
    # No call makes up for a failed attempt: rollouts may fail in their last call.
    for _ in range(3):
        breakers.count_failure(1)
        breakers.observe(ENDPOINT, "ok", "", 1, 1)
    assert breakers.failing_collections() == {1}


@pytest.mark.parametrize(
    ("outcome", "final"), [("unreachable", False), ("timed_out", False), ("server_error", True), ("malformed", True)]
)
def test_many_claims_end_a_rollout_of_an_endpoint_that_sends_errors_but_of_none_that_is_away(outcome, final):
    breakers = Breakers()
    for _ in range(3):
        breakers.observe(Endpoint("policy_model", 7), outcome, "no", 1, 1)
    options = dict.fromkeys(("judge_seats", "throttles", "meters"))
    listener = RolloutListener(None, None, breakers=breakers, **options)
    setting = SimpleNamespace(policy_model_id=7, max_attempts=2)
    claim = SimpleNamespace(rollout_id=1, collection_id=1, attempt=20, failures=0)
    assert listener.count_failure(claim, setting, PolicyError("no")) == (None if final else 0)


def test_what_is_known_about_failing_rollouts_is_bounded(monkeypatch):
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.MAX_FAILING", 3)
    breakers = Breakers()
    failing_beside_others(breakers, gaps=4)
    for rollout in (20, 21, 22):
        breakers.observe(ENDPOINT, "unreachable", "gone", rollout)
    breakers.set_open([ENDPOINT])
    assert breakers.is_failing(ENDPOINT, 7)  # forgotten
    with breakers.reports() as reports:
        assert reports[ENDPOINT].rollouts == (22, 21, 20)


def fetch(worker):
    """One round of claiming for the worker."""
    return fetch_work(
        lease=worker.pk,
        seats=8,
        in_use=InUse([], lease=worker.pk, claiming=[(worker.pk, "")]),
        reports={},
        started=set(),
        settings_in_use=Settings(open_outbound(), lambda *_: None, JudgeSeats(), Throttles()),
        reservations=Reservations(),
    ).work


@pytest.mark.parametrize("role", ["policy model", "environment", "judge"])
def test_tests_take_turns_between_collections_and_their_least_attempted_rollouts(role):
    model, judge = make_policy_model(mistake_rate=0.0), make_policy_model()
    environment = make_environment(slug="judged", builtin="judged", judge_model=judge)
    planned = {"environment": environment.slug, "repeats": 1, "model": model}
    poisoned = plan(**planned, priority=1)
    endpoint = {
        "policy model": Endpoint("policy_model", model.pk),
        "environment": Endpoint("environment", environment.pk),
        "judge": Endpoint("policy_model", judge.pk),
    }[role]
    worker = take_lease(seats=8)

    def test():
        """The collection and the attempts of the rollout that tests now; empty if none is due."""
        claims = [one.claim for one in fetch(worker)]
        for claim in claims:
            Rollout.objects.filter(pk=claim.rollout_id).update(status="queued", lease=None)
        return [(claim.collection_id, claim.attempt) for claim in claims]

    def wait(seconds):
        [breaker] = Breaker.objects.all()
        Breaker.objects.update(retry_at=breaker.retry_at - timedelta(seconds=seconds))

    first = poisoned.rollouts.order_by("pk").first()
    Rollout.objects.filter(pk=first.pk).update(attempt=5)
    store_reports({endpoint: BreakerReport(False, 10, "500", (first.pk,), (poisoned.pk,))})
    assert test() == []
    wait(5)
    assert test() == [(poisoned.pk, 1)]  # not the first rollout, with five attempts
    wait(10)
    assert test() == [(poisoned.pk, 1)]
    wait(20)
    assert test() == [(poisoned.pk, 1)]
    good = plan(**planned, priority=2)
    assert test() == [(good.pk, 1)] * 4  # the breaker does not hold it: only calls of the other collection failed
    assert (find_holds(good), len(find_holds(poisoned))) == ([], 1)
    store_reports({endpoint: BreakerReport(False, 10, "500", (), (good.pk,))})
    assert test() == []
    assert len(find_holds(good)) == 1
    wait(60)
    assert test() == [(good.pk, 2)]  # it has had fewer tests, although its priority is lower
    assert Breaker.objects.get().tests == {str(poisoned.pk): 3, str(good.pk): 1}
    store_reports({endpoint: BreakerReport(True)})
    assert (Breaker.objects.get().tests, len(test())) == ({}, 8)


def test_a_rollout_that_waits_before_a_retry_gives_its_seat_back_once():
    async def main():
        seats, memory = WorkerSeats(2, freed=lambda: None), MemoryBudget()
        seats.memory, go = memory, asyncio.Event()

        async def call(seconds):
            with parked(pausing=seconds > 0):
                await go.wait()

        async def rollout(*pauses):
            with memory.account():
                await asyncio.gather(*map(call, pauses))

        found = []
        for pauses in [(0,), (1, 1), (1,), (1,)]:  # the first waits for something else; two calls of the second wait
            seats.take(Claim(1, 1, 1, 1, 0, 0, 1, 0, 0), SimpleNamespace(policy_model_id=1), rollout(*pauses))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            found.append(seats.free)
        assert found == [1, 1, 1, 0]  # at most twice as many run as there are seats
        go.set()
        await seats.wait(DEADLINE)
        await asyncio.sleep(0)
        assert (seats.free, len(memory.pausing)) == (2, 0)

    asyncio.run(main())


@pytest.mark.parametrize("max_tries", [1, 4])
@pytest.mark.parametrize("status", [200, 502])
def test_no_rollout_fails_if_a_gateway_sends_pages_amid_two_collections(monkeypatch, status, max_tries):
    """The model has answered both just before, so nothing but the failures shows that it is away."""
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.FIRST_COOLDOWN", 0.3)
    calls, back = [], []

    async def answer(request):
        calls.append(1)
        if len(calls) > 8 and not (back and time.monotonic() > back[0]):
            return web.Response(text="<html>Deploying</html>", content_type="text/html", status=status)
        message = {"role": "assistant", "content": "\\boxed{0}"}
        await asyncio.sleep(0.05)
        return web.json_response({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})

    async def collect():
        runner, port = await serve_chat(answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=max_tries
        )
        for _ in range(2):
            await sync_to_async(plan)(model=model, repeats=10, concurrency=4)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not await Breaker.objects.filter(state__in=["open", "half_open"]).aexists():
                await asyncio.sleep(0.02)
            back.append(time.monotonic() + 0.5)
            while await Collection.objects.filter(state="running").aexists():
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        await runner.cleanup()

    async_to_sync(collect)()
    assert set(Collection.objects.values_list("completed", "failed")) == {(40, 0)}


class Endpoints:
    """A chat model on loopback that answers 503 while `broken`."""

    def __init__(self):
        self.broken = True
        self.calls = 0

    async def answer(self, request):
        self.calls += 1
        if self.broken:
            return web.json_response({"error": {"message": "loading the weights"}}, status=503)
        message = {"role": "assistant", "content": "\\boxed{0}"}
        return web.json_response({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})


def test_rollouts_wait_for_an_endpoint_that_is_away_and_none_of_them_fails(monkeypatch):
    """More rollouts than the breaker needs failures meet a broken model; all complete once it is well."""
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.FIRST_COOLDOWN", 0.3)

    async def collect():
        endpoints = Endpoints()
        runner, port = await serve_chat(endpoints.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        collection = await sync_to_async(plan)(model=model, repeats=10, max_attempts=1)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=16)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not await Breaker.objects.filter(state__in=["open", "half_open"]).aexists():
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.0)
            refused = endpoints.calls
            endpoints.broken = False
            while not (await Collection.objects.aget(pk=collection.pk)).is_finished:
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        await runner.cleanup()
        return refused

    refused = async_to_sync(collect)()
    collection = Collection.objects.get()
    # The first two failed before anybody could know; the rest waited.
    assert (collection.completed, collection.failed) == (38, 2)
    assert refused <= 24
    assert Breaker.objects.get().state == "closed"
    assert set(Rollout.objects.filter(status="failed").values_list("error_kind", "reward")) == {("policy_error", None)}


def test_an_attempt_that_failed_with_its_endpoint_is_tried_again_and_both_traces_stay():
    class FailsOnce(Endpoints):
        async def answer(self, request):
            self.broken = self.calls == 0
            return await super().answer(request)

    async def collect():
        endpoints = FailsOnce()
        runner, port = await serve_chat(endpoints.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        collection = await sync_to_async(plan)(model=model, repeats=1, limit=1)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=16)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not (await Collection.objects.aget(pk=collection.pk)).is_finished:
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        await runner.cleanup()

    async_to_sync(collect)()
    rollout = Rollout.objects.get()
    assert (rollout.status, rollout.attempt, rollout.failures, rollout.reward) == ("completed", 2, 1, 1.0)
    kinds = {attempt: [] for attempt in (1, 2)}
    for event in rollout.events.order_by("attempt", "seq"):
        kinds[event.attempt].append(event.kind)
    assert kinds == {
        1: ["session", "prompt", "error"],
        2: ["session", "prompt", "model_call", "verification"],
    }
    assert (Collection.objects.get().retried, Collection.objects.get().failed) == (1, 0)


class Poisoned:
    """A chat model that never answers prompts with a certain word, in one of these ways, and counts those calls."""

    def __init__(self, way):
        self.way, self.poisoned = way, 0

    async def answer(self, request):
        asked = await request.json()
        message = {"role": "assistant", "content": "\\boxed{0}"}
        if "poison" in str(asked["messages"]):
            self.poisoned += 1
            if self.way == "500":
                return web.json_response({"error": {"message": "cannot parse the call"}}, status=500)
            if self.way == "not JSON":
                return web.Response(text='{"choices": [', content_type="application/json")
            message["tool_calls"] = [{"id": "a"}]
        await asyncio.sleep(0.02)
        return web.json_response({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})


@pytest.mark.parametrize("way", ["500", "not JSON", "broken call"])
def test_two_poisoned_rollouts_hold_no_other_collection_back(monkeypatch, way):
    """The poisoned rollouts have opened the breaker before the good collection begins."""
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.FIRST_COOLDOWN", 0.3)

    async def collect():
        endpoints = Poisoned(way)
        runner, port = await serve_chat(endpoints.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=4
        )
        bad = [make_row(f"What is {n} * 3, poison?", str(n * 3)) for n in range(2)]
        poisoned = await sync_to_async(plan)(bad, model=model, repeats=1, priority=1)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=4)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not await Breaker.objects.filter(state__in=["open", "half_open"]).aexists():
                await asyncio.sleep(0.02)
            named = (await Breaker.objects.aget()).rollouts
            good = await sync_to_async(plan)(model=model, repeats=10, priority=2)
            while not (await Collection.objects.aget(pk=good.pk)).is_finished:
                await asyncio.sleep(0.05)
            more = await sync_to_async(plan)(model=model, repeats=100, priority=2)
            while not (await Collection.objects.aget(pk=poisoned.pk)).is_finished:
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        await runner.cleanup()
        return poisoned.pk, good.pk, more.pk, named

    poisoned, good, more, named = async_to_sync(collect)()
    ended = {row["pk"]: row for row in Collection.objects.values("pk", "completed", "failed")}
    assert ended[poisoned] == {"pk": poisoned, "completed": 0, "failed": 2}
    assert ended[good] == {"pk": good, "completed": 40, "failed": 0}
    assert ended[more]["failed"] == 0
    ids = set(Rollout.objects.filter(collection=poisoned).values_list("pk", flat=True))
    assert named
    assert set(named) <= ids
    assert set(Rollout.objects.filter(pk__in=ids).values_list("error_kind", "reward")) == {("policy_error", None)}


@pytest.mark.parametrize("pages", [3, 1_000], ids=["passing", "permanent"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>Deploying</html>", "text/html"),
        ('{"detail": "welcome"}', "application/json"),
        ('{"choices": []}', "application/json"),
    ],
    ids=["page", "foreign", "empty"],
)
def test_unreadable_replies_end_rollouts_after_a_few_tries_and_a_deployment_ends_none(
    monkeypatch, settings, pages, body, kind
):
    """Every attempt has one try here, and the breaker opens after the first."""
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.FIRST_COOLDOWN", 0.02)
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.LONGEST_COOLDOWN", 0.1)
    settings.BREAKER_FAILURES = 1
    calls = []

    async def answer(request):
        calls.append(1)
        if len(calls) <= pages:
            return web.Response(text=body, content_type=kind)
        message = {"role": "assistant", "content": "\\boxed{0}"}
        return web.json_response({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})

    async def collect():
        runner, port = await serve_chat(answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        collection = await sync_to_async(plan)(model=model, repeats=1, limit=2, max_attempts=1)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=4)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not (await Collection.objects.aget(pk=collection.pk)).is_finished:
                await asyncio.sleep(0.02)
        worker.stop()
        await working
        await runner.cleanup()

    async_to_sync(collect)()
    ended = Rollout.objects.values_list("status", "error_kind", "failures")
    if pages == 3:
        assert {one[:2] for one in ended} == {("completed", "")}
        return
    assert list(ended) == [("failed", "policy_error", 5)] * 2
    assert len(calls) == 10
    for message in Rollout.objects.values_list("error_message", flat=True):
        assert kind in message
        assert body in message
        assert "address, provider and wire" in message
