"""Wait for a collection with a worker at hand: what the command line does where no worker process runs."""

import asyncio
from collections.abc import Callable

from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer

from apps.rollouts.engine.claiming import usable_by
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.engine.worker_leases import live_workers
from apps.rollouts.models import Collection, Worker
from apps.rollouts.notifications import WORKER_CHANNEL
from apps.rollouts.steering.holds import Holds, find_holds

LOOK_SECONDS = 0.25


async def finish_collection(
    collection: Collection,
    *,
    progress: Callable[[Collection], None],
    held: Callable[[Holds], None] | None = None,
    left: Callable[[list[Worker]], None] | None = None,
    seats: int | None = None,
) -> Collection:
    """Return when the collection has ended or is paused, calling `progress` as it goes.

    `held` is told, with every look, which breakers hold it back. Runs a worker unless live ones can run it: `left` is
    told of those, and again when they or what troubles them are others.
    """
    group = await sync_to_async(_group_of)(collection)
    worker: RolloutWorker | None = None
    working: asyncio.Future[None] | None = None
    known: list[tuple[int, str]] = []
    try:
        while not (collection.is_finished or collection.state == Collection.State.PAUSED):
            if working and working.done():
                await working
            # Asked again and again: the worker that was live at the start may have died since.
            if worker is None:
                others = await sync_to_async(_find_runners)(collection)
                seen = [(other.pk, other.trouble) for other in others]
                if left and others and seen != known:
                    left(others)
                known = seen
                if not others:
                    worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=seats, group=group)
                    working = asyncio.ensure_future(worker.handle())
            await asyncio.sleep(LOOK_SECONDS)
            await collection.arefresh_from_db()
            progress(collection)
            if held:
                held(await sync_to_async(find_holds)(collection))
    finally:
        if worker and working:
            worker.stop()
            await working
    return collection


def _find_runners(collection: Collection) -> list[Worker]:
    """The live workers that may run it, but for those that cannot, as they are set up: this process may be able to."""
    live = live_workers()
    this = Collection.objects.filter(pk=collection.pk)
    mine = {group for group in {group for _, group in live} if this.filter(usable_by(group)).exists()}
    found = Worker.objects.filter(pk__in=[pk for pk, group in live if group in mine])
    # Not excluded by the query: of a key that is missing JSON gives NULL, which neither is nor is not.
    return [worker for worker in found.order_by("pk") if str(collection.pk) not in worker.refuses]


def _group_of(collection: Collection) -> str:
    return collection.policy_model.worker_group or collection.environment.worker_group
