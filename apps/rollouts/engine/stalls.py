"""Report what blocks an event loop: one slow call stops every rollout of the process."""

import asyncio
import logging
import sys
import threading
import time
import traceback

logger = logging.getLogger(__name__)

STALL_SECONDS = 1.0
_TICK_SECONDS = 0.5


class StallWatch:
    """Log the stack of the event loop when it is blocked for STALL_SECONDS. Start and stop it on the loop."""

    def __init__(self) -> None:
        self._last_tick = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._handle.cancel()

    def _tick(self) -> None:
        self._last_tick = time.monotonic()
        self._handle = self._loop.call_later(_TICK_SECONDS, self._tick)

    def _watch(self) -> None:
        wait, reported_tick = _TICK_SECONDS, 0.0
        while not self._stop.wait(wait):
            last_tick = self._last_tick
            left = last_tick + STALL_SECONDS + _TICK_SECONDS - time.monotonic()
            wait = left if left > 0 else _TICK_SECONDS
            if left > 0 or reported_tick == last_tick:
                continue
            reported_tick = last_tick
            where = _describe_stack(self._loop_thread)
            logger.warning("the event loop was blocked for over %g s at:\n%s", STALL_SECONDS, where)


def _describe_stack(thread: int) -> str:
    """Return the stack of a thread. A separate function, to drop its reference to the frame."""
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame, limit=12)).rstrip() if frame else "unknown location"
