"""Collections on a full disk: they wait, and go on by themselves; what a person paused stays paused."""

import asyncio

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.accounts.job_declarations import background_job
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.notifications import WORKER_CHANNEL
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.controls import pause_collection
from tests.deadlines import DEADLINE, wait_until_async
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.usefixtures("migrated")
done: list[str] = []


@background_job(on_full_disk=True)
def free() -> bool:
    done.append("free")
    return False


def store() -> bool:
    done.append("store")
    return False


def test_rollouts_wait_while_the_disk_is_full_and_go_on_by_themselves(settings, full_disk):
    settings.WORKER_BACKGROUND_JOBS = ["tests.rollouts.test_full_disk.free", "tests.rollouts.test_full_disk.store"]
    dataset = make_dataset([make_row()])
    mine, paused = (
        plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=make_policy_model(), repeats=3))
        for _ in range(2)
    )
    pause_collection(collection=paused)

    async def work() -> tuple[int, set[str]]:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        try:
            # In the second round every job has been asked once.
            await wait_until_async(lambda: done.count("free") > 1 and "is full" in worker._identity.trouble)
            begun = await Rollout.objects.filter(attempt__gt=0).acount()
            seen = set(done)
            full_disk.free()
            async with asyncio.timeout(DEADLINE):
                while not await Collection.objects.filter(pk=mine.pk, state=Collection.State.COMPLETED).aexists():
                    await asyncio.sleep(0.05)
                while "store" not in done:
                    await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await working
        return begun, seen

    done.clear()
    begun, seen = async_to_sync(work)()
    assert (begun, seen) == (0, {"free"})
    mine.refresh_from_db()
    paused.refresh_from_db()
    assert (mine.completed, mine.failed, mine.retried) == (3, 0, 0)
    assert (paused.state, paused.pause_reason, paused.completed) == ("paused", Collection.PauseReason.ASKED, 0)
