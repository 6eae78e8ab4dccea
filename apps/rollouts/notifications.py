"""Notify workers and pages. Messages carry only ids. If one is lost, polling finds the change in the database."""

import asyncio
import logging
from collections.abc import Iterable

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.accounts.outage_log import LAYER

logger = logging.getLogger(__name__)

WORKER_CHANNEL = "rollouts"
ANNOUNCE_SECONDS = 0.2


def collection_group(collection_id: int) -> str:
    return f"collection.{collection_id}"


def notify_workers() -> None:
    """Wake one worker or all, depending on the channel layer. If it is full or unavailable, workers poll."""
    async_to_sync(_notify)()


def announce_and_notify(collection_id: int) -> None:
    """Announce the change and wake workers together: if the channel layer hangs, the caller waits only once."""
    async_to_sync(_announce_and_notify)(collection_id)


async def _announce_and_notify(collection_id: int) -> None:
    await asyncio.gather(announce_from_loop(collection_id), _notify())


async def _notify() -> None:
    try:
        await get_channel_layer().send(WORKER_CHANNEL, {"type": "rollouts.wake"})
    except Exception as problem:
        _log_failure("sending a wake-up", problem)


def announce_collection(collection_id: int) -> None:
    async_to_sync(announce_from_loop)(collection_id)


async def announce_from_loop(collection_id: int) -> bool:
    """Notify the pages of a collection that its rows changed. Return False if the channel layer is unavailable."""
    try:
        await get_channel_layer().group_send(
            collection_group(collection_id), {"type": "collection.changed", "collection": collection_id}
        )
    except Exception as problem:
        _log_failure("announcing changes", problem)
        return False
    return True


class Changes:
    """Collections whose pages are yet to be notified, at most every ANNOUNCE_SECONDS. Belongs to one event loop."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._changed = asyncio.Event()

    def add(self, ids: Iterable[int]) -> None:
        self._ids.update(ids)
        if self._ids:
            self._changed.set()

    async def announce(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(ANNOUNCE_SECONDS)
            await self.announce_now()

    async def announce_now(self) -> None:
        self._changed.clear()
        ids, self._ids = self._ids, set()
        for collection_id in ids:
            if not await announce_from_loop(collection_id):
                return  # Pages poll meanwhile, so do not wait once per collection for an unavailable layer.


def _log_failure(work: str, problem: Exception) -> None:
    if isinstance(problem, ConnectionError):
        LAYER.failed(work, problem)
    else:
        # An in-memory layer is full if no worker listens to it.
        logger.debug("%s: %r", work, problem)
