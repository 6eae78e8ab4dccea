"""Circuit breakers: an endpoint that keeps failing holds its rollouts back instead of failing them."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from apps.rollouts.engine.circuit_breakers import (
    BreakerReport,
    Breakers,
    Endpoint,
    claim_breaker_test,
    read_open_breakers,
    store_reports,
)
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Breaker, Collection, Rollout
from tests.deadlines import DEADLINE
from tests.factories import make_policy_model
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
        assert (breakers.is_failing(endpoint), reports) == (False, {})
    breakers.observe(endpoint, "malformed", "not JSON")
    with breakers.reports() as reports:
        assert (breakers.is_failing(endpoint), reports) == (True, {endpoint: BreakerReport(False, 3, "not JSON")})


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
        assert claim_breaker_test(endpoint, read_open_breakers()[endpoint])
        store_reports({endpoint: BreakerReport(False, 4, "no")})
        cooldowns.append(Breaker.objects.get().cooldown)
    assert cooldowns == [10.0, 20.0, 40.0, 60.0, 60.0]
    store_reports({endpoint: BreakerReport(True)})
    assert (read_open_breakers(), Breaker.objects.get().state) == ({}, "closed")


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
