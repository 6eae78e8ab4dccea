"""Run served agents, environments and models inside the web process.

One event loop in its own thread owns all sessions and connections, whichever thread handles a request.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from apps.accounts.outages import release_connection
from apps.gym.calls.outbound import Outbound
from apps.gym.errors import GymError
from apps.gym.serving.served_environment import CannotServe
from apps.gym.serving.served_request import Answer, IncomingRequest, Served, answer_always, json_answer
from apps.policies.policy_clients import open_outbound

TIDY_SECONDS = 30.0
CONNECT_SECONDS = 60.0
CLOSE_SECONDS = 10.0
MOST_HOSTED = 500

Connect = Callable[[Outbound], Awaitable[Served]]
Result = TypeVar("Result")


class Host:
    """Connects served objects on first use, and keeps them until their rows change."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hosted: dict[str, tuple[object, Served]] = {}
        # One lock per name being connected: a server that hangs delays only its own requests.
        self._connecting: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def answer(
        self, *, name: str, stamp: object, connect: Connect, incoming: IncomingRequest, seconds: float
    ) -> tuple[Answer, str]:
        """Return the answer and the name of its session cookie.

        `stamp` changes with the rows that `name` depends on. Thread-safe.
        """
        return self._run(self._answer(name, stamp, connect, incoming, seconds), CONNECT_SECONDS + seconds + 5.0)

    def close(self) -> None:
        """Close everything that is open, within a time limit. A later request connects again."""
        if self._loop is not None:
            with contextlib.suppress(TimeoutError):
                self._run(self._close(), CLOSE_SECONDS)

    def _run(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        release_connection()
        running = asyncio.run_coroutine_threadsafe(work, self._start())
        try:
            return running.result(seconds)
        except TimeoutError:
            running.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        # Started at the first request, so that a process that forks before has no thread to lose.
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._live, args=(self._loop,), name="served", daemon=True).start()
            return self._loop

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        self._outbound = open_outbound()
        self._tidying = loop.create_task(self._tidy())
        loop.run_forever()

    async def _answer(
        self, name: str, stamp: object, connect: Connect, incoming: IncomingRequest, seconds: float
    ) -> tuple[Answer, str]:
        try:
            served = await self._get(name, stamp, connect)
        except (CannotServe, GymError) as problem:
            return json_answer({"detail": str(problem)}, 409), ""
        except TimeoutError:
            return json_answer({"detail": f"{name} was not connected within {CONNECT_SECONDS:g} s"}, 504), ""
        # Memory of a served agent's calls is accounted until its answer is ready.
        with self._outbound.memory.account():
            return await answer_always(served, incoming, seconds=seconds), served.cookie

    async def _get(self, name: str, stamp: object, connect: Connect) -> Served:
        async with asyncio.timeout(CONNECT_SECONDS), self._connecting.setdefault(name, asyncio.Lock()):
            known = self._hosted.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            served = await connect(self._outbound)
            over = self._hosted.pop(name, None)
            if over is None and len(self._hosted) >= MOST_HOSTED:
                over = self._hosted.pop(next(iter(self._hosted)))
            self._hosted[name] = stamp, served
            if over is not None:
                await over[1].close()
            return served

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            for _, served in list(self._hosted.values()):
                with contextlib.suppress(GymError):
                    await served.tidy()

    async def _close(self) -> None:
        for _, served in self._hosted.values():
            await served.close()
        self._hosted.clear()


HOST = Host()
"""The host of this process."""
