"""Wait for a collection with a local worker: for commands without a worker process."""

import asyncio
from collections.abc import Callable

from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer

from apps.rollouts.engine.claiming import usable_by
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.engine.worker_leases import claiming_workers
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
    """Wait until the collection has ended or is paused. Calls `progress` meanwhile.

    `held` is called with the open breakers on every poll. Runs a worker unless live ones can run the collection; `left`
    is called with these, and when they change.
    """
    group = await sync_to_async(_group_of)(collection)
    worker: RolloutWorker | None = None
    working: asyncio.Future[None] | None = None
    known: list[tuple[int, str]] = []
    try:
        while not (collection.is_finished or collection.state == Collection.State.PAUSED):
            if working and working.done():
                await working
            # Checked repeatedly: the worker that was live at the start may have stopped.
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
    """Return the live workers that may run it, except workers that cannot, as configured.

    This process may be able to.
    """
    live = claiming_workers()
    this = Collection.objects.filter(pk=collection.pk)
    mine = {group for group in {group for _, group in live} if this.filter(usable_by(group)).exists()}
    found = Worker.objects.filter(pk__in=[pk for pk, group in live if group in mine])
    # Not excluded in the query: JSON gives NULL for a missing key, which matches neither condition.
    return [worker for worker in found.order_by("pk") if str(collection.pk) not in worker.refuses]


def _group_of(collection: Collection) -> str:
    return collection.policy_model.worker_group or collection.environment.worker_group
