"""Long work is done by workers that share the files of the web processes, and left alone by those that do not."""

import asyncio

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.notifications import WORKER_CHANNEL
from tests.deadlines import wait_until_async

pytestmark = pytest.mark.usefixtures("migrated")
asked: list[int] = []


def note() -> bool:
    asked.append(1)
    return False


@pytest.mark.parametrize(("background_jobs", "times"), [(True, 1), (False, 0)])
def test_a_worker_does_background_jobs_unless_told_to_leave_them(settings, background_jobs, times):
    settings.WORKER_BACKGROUND_JOBS = ["tests.rollouts.test_background_jobs.note"]
    asked.clear()

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1, background_jobs=background_jobs)
        working = asyncio.create_task(worker.handle())
        if background_jobs:
            await wait_until_async(lambda: bool(asked))
        else:
            await wait_until_async(lambda: bool(worker.lease))
            await asyncio.sleep(0.7)
        worker.stop()
        await working

    async_to_sync(work)()
    assert len(asked) == times
