"""Notify workers and pages. Messages carry only ids. If one is lost, polling finds the change in the database."""

import asyncio
import logging

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.accounts.outage_log import LAYER

logger = logging.getLogger(__name__)

WORKER_CHANNEL = "rollouts"


def collection_group(collection_id: int) -> str:
    return f"collection.{collection_id}"


def notify_workers() -> None:
    """Wake one worker or all, depending on the channel layer. If it is full or absent, workers poll."""
    async_to_sync(_notify)()


def announce_and_notify(collection_id: int) -> None:
    """Both at once: where the layer hangs, whoever asked waits for it once."""
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
    """Tell the pages of a collection that its rows changed; they read the database. False where the layer is away."""
    try:
        await get_channel_layer().group_send(
            collection_group(collection_id), {"type": "collection.changed", "collection": collection_id}
        )
    except Exception as problem:
        _log_failure("announcing changes", problem)
        return False
    return True


def _log_failure(work: str, problem: Exception) -> None:
    if isinstance(problem, ConnectionError):
        LAYER.failed(work, problem)
    else:
        # A layer in memory is full when no worker listens to it.
        logger.debug("%s: %r", work, problem)
