"""A stopping worker ends its background jobs instead of waiting for them."""

import asyncio
import threading
import time

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.gym import process_exit
from apps.rollouts.engine.worker import RolloutWorker

pytestmark = pytest.mark.usefixtures("migrated")

began = threading.Event()
ended: list[str] = []


def work_for_an_hour() -> bool:
    began.set()
    end = time.monotonic() + 3600
    try:
        while time.monotonic() < end:
            process_exit.check()
            time.sleep(0.01)
    except process_exit.Leaving:
        ended.append("background job")
        raise
    return True


def test_a_background_job_ends_soon_after_its_worker(settings):
    settings.WORKER_BACKGROUND_JOBS = ["tests.rollouts.test_background_job_shutdown.work_for_an_hour"]
    worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=1)

    async def work_and_leave() -> None:
        working = asyncio.create_task(worker.handle())
        await asyncio.to_thread(began.wait, 10)
        worker.stop()
        await working

    async_to_sync(work_and_leave)()
    # What Python does at its exit.
    worker._background_jobs.close(wait=True)
    assert ended == ["background job"]


def test_an_uninterruptible_thread_continues():
    process_exit.check()
