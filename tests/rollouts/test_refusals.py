"""A worker that is set up wrongly fails nothing: it says what it cannot run, and others run it."""

import asyncio
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Rollout, Worker
from apps.rollouts.steering.holds import find_holds
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE
from tests.factories import make_policy_model, make_worker
from tests.rollouts.work import plan

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_LEASE_SECONDS = 6.0
    settings.OUTBOUND_ALLOW = []


def work_until_it_refuses(collection):
    """Run a worker until its row says that it cannot run the collection; gives what the pages say then."""

    async def work():
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        try:
            async with asyncio.timeout(DEADLINE):
                while not await Worker.objects.filter(refuses__has_key=str(collection.pk)).aexists():
                    await asyncio.sleep(0.05)
            return await sync_to_async(lambda: [str(hold) for hold in find_holds(collection)])()
        finally:
            worker.stop()
            await working

    return async_to_sync(work)()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, "not a public address"),
        ({"base_url": "https://models.example/v1", "api_key_encrypted": "garbage"}, "SecretUnreadable"),
    ],
)
def test_what_this_worker_cannot_reach_or_read_fails_no_rollout(fields, why):
    model = make_policy_model(provider="compatible", model_name="x", **fields)
    collection = plan(model=model, max_attempts=1)
    (hold,) = work_until_it_refuses(collection)
    assert why in hold
    assert "cannot run this collection" in hold
    collection.refresh_from_db()
    assert (collection.state, collection.failed, collection.completed) == ("running", 0, 0)
    assert set(Rollout.objects.values_list("status", "failures", "lost", "finished_at")) == {("queued", 0, 0, None)}
    assert why in Worker.objects.get().trouble


def test_what_it_can_run_goes_on(settings):
    held = plan(model=make_policy_model(provider="compatible", model_name="x", base_url="http://127.0.0.1:9/v1"))
    fine = async_to_sync(finish_collection)(plan(), progress=lambda _: None)
    held.refresh_from_db()
    assert (fine.completed, held.failed, held.state) == (8, 0, "running")


def test_a_collection_that_the_live_workers_cannot_run_is_run_here():
    collection = plan()
    server = make_worker(
        lease_expires_at=timezone.now() + timedelta(hours=1), refuses={str(collection.pk): "there is no environment"}
    )
    told = []
    ended = async_to_sync(finish_collection)(collection, progress=lambda _: None, left=told.append)
    assert (ended.completed, told) == (8, [])
    server.refresh_from_db()
    assert server.state == Worker.State.ACTIVE
