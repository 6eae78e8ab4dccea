"""Rollouts of an environment with an unhealthy server wait, and continue when it recovers."""

import asyncio
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.test import Client
from django.utils import timezone

from apps.environments import environment_health
from apps.environments.models import Environment
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.notifications import WORKER_CHANNEL
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.holds import find_holds
from tests.deadlines import DEADLINE
from tests.environments.flag import FlagServer
from tests.factories import make_agent, make_dataset, make_environment, make_policy_model, make_row, make_user

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick(settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.WORKER_BACKGROUND_JOBS = ["apps.environments.environment_health.probe_due_environments"]
    settings.WORKER_GRACE_SECONDS = 5
    settings.PROBE_SECONDS = 0.2
    monkeypatch.setattr(environment_health, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(environment_health, "SECOND_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(environment_health, "_STALE_AFTER", 100)


def plan(base_url):
    environment = make_environment(
        slug="lab", name="Lab", adapter="http", builtin="", base_url=base_url, probe_due_at=timezone.now()
    )
    dataset = make_dataset([make_row()], environment=environment)
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=make_policy_model(), repeats=3))


def test_rollouts_wait_for_a_server_that_is_unwell_and_go_on_when_it_is_well():
    async def work(server, collection):
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        try:
            await asyncio.sleep(2.0)
            waiting = await Rollout.objects.filter(status=Rollout.Status.QUEUED, attempt=0).acount()
            holds = [str(hold) for hold in await sync_to_async(find_holds)(collection)]
            server.is_well = True
            async with asyncio.timeout(DEADLINE):
                while not await Collection.objects.filter(state=Collection.State.COMPLETED).aexists():
                    await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await working
        return waiting, holds

    with FlagServer() as server:
        server.is_well = False
        collection = plan(server.url)
        environment_health.probe_due_environments()
        waiting, holds = async_to_sync(work)(server, collection)
    assert waiting == 3
    assert len(holds) == 1
    assert holds[0].startswith("environment Lab: its server is unhealthy: GET / returned 503")
    assert "next health check" in holds[0]
    collection.refresh_from_db()
    assert (collection.completed, collection.failed, collection.retried) == (3, 0, 0)
    assert find_holds(collection) == []


def test_an_unwell_environment_leaves_no_slots():
    collection = plan("http://127.0.0.1:9")
    environment = Environment.objects.filter(pk=collection.environment_id)
    environment.update(health="unhealthy", health_checked_at=timezone.now())
    in_use = InUse([], lease=1, claiming=[(1, "")])
    assert in_use.slots(8, {}).environments == {collection.environment_id: 0}
    environment.update(health_checked_at=timezone.now() - timedelta(days=1))
    assert in_use.slots(8, {}).environments == {collection.environment_id: 1024}


def test_the_page_of_the_collection_says_what_it_waits_for():
    collection = plan("http://127.0.0.1:9")
    Environment.objects.filter(pk=collection.environment_id).update(
        health="unhealthy",
        health_message="GET / returned 503",
        health_checked_at=timezone.now(),
        unwell_since=timezone.now(),
        probe_due_at=timezone.now() + timedelta(minutes=10),
    )
    client = Client()
    client.force_login(make_user(role="viewer"))
    page = client.get(f"/collections/{collection.pk}/").content.decode()
    assert "Environment Lab: its server is unhealthy: GET / returned 503; next health check in" in page
    (held,) = client.get(f"/api/v1/collections/{collection.pk}/").json()["held_back_by"]
    assert held.startswith("environment Lab: its server is unhealthy: GET / returned 503; next health check in")
    assert "held_back_by" not in client.get("/api/v1/collections/").json()["results"][0]
    page = client.get("/environments/lab/").content.decode()
    assert "No new rollouts start until a check succeeds" in page
