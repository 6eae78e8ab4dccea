"""Wait for a collection with a worker at hand: what the command line does where no worker process runs."""

import asyncio
from collections.abc import Callable

from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer

from apps.rollouts.announcing import DOORBELL
from apps.rollouts.leasing import live_workers
from apps.rollouts.models import Collection
from apps.rollouts.worker import RolloutWorker

LOOK_SECONDS = 0.25


async def finish_collection(
    collection: Collection, *, progress: Callable[[Collection], None], seats: int | None = None
) -> Collection:
    """Return when the collection has ended, calling `progress` as it goes; runs a worker unless a live one exists."""
    worker: RolloutWorker | None = None
    working: asyncio.Future[None] | None = None
    try:
        while not collection.is_finished:
            if working and working.done():
                await working
            # Asked again and again: the worker that was live at the start may have died since.
            if worker is None and not await sync_to_async(live_workers)():
                worker = RolloutWorker(None, [DOORBELL], get_channel_layer(), seats=seats)
                working = asyncio.ensure_future(worker.handle())
            await asyncio.sleep(LOOK_SECONDS)
            await collection.arefresh_from_db()
            progress(collection)
    finally:
        if worker and working:
            worker.stop()
            await working
    return collection
