"""The seats of a worker: one asyncio task per running rollout, and limits of judge calls."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

from django.conf import settings

from apps.gym.calls.memory_budget import MemoryBudget
from apps.rollouts.engine.claiming import MAX_CLAIM, Claim
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.running import Setting


def external_seats(seats: int) -> int:
    """Return how many of a worker's seats attempts of external agents may take. Idle ones must not take all."""
    return max(1, int(seats * settings.EXTERNAL_SHARE))


class WorkerSeats:
    """The seats of a worker. Used only on its event loop.

    `freed` is called when enough seats are free to claim again. A rollout that waits before a retry gives its seat to
    another one, so that rollouts whose calls fail do not take all seats. At most twice as many run as there are seats.
    """

    def __init__(self, number: int, freed: Callable[[], None]) -> None:
        self.judges = JudgeSeats()
        self.memory: MemoryBudget | None = None
        """Counts the rollouts that wait before a retry."""
        self._number = number
        self._freed = freed
        self._running: dict[asyncio.Task[None], tuple[Claim, Setting]] = {}
        self._rollouts_by_model: Counter[int] = Counter()  # number of rollouts by policy model id
        # One for all rollouts, because thousands of them run at the same time.
        self._ended, self._context = self._leave, Context()

    @property
    def taken(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        pausing = self.memory.pausing if self.memory else ()
        return self._number - len(self._running) + (min(len(pausing), self._number) if pausing else 0)

    def has_external_seat(self, taken: int) -> bool:
        return self.free > 0 and taken < external_seats(self._number)

    def running(self) -> list[tuple[Claim, Setting]]:
        return list(self._running.values())

    def set_judge_limits(self, limits: Mapping[int, int]) -> None:
        """Set the maximum judge calls in flight by model id."""
        self.judges.set_limits(limits, self._rollouts_by_model)

    def take(self, claim: Claim, setting: Setting, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="rollout")
        self._running[task] = (claim, setting)
        self._rollouts_by_model[setting.policy_model_id] += 1
        task.add_done_callback(self._ended, context=self._context)

    def _leave(self, task: asyncio.Task[None]) -> None:
        ended = self._running.pop(task, None)
        if ended is not None:
            self._rollouts_by_model[ended[1].policy_model_id] -= 1
            self.set_judge_limits({})
        # Claim when a batch of seats is free or nothing runs; otherwise the next poll claims. With few seats, a quarter
        # is enough: waiting for all would leave them empty between short rollouts.
        if not self._running or self.free >= min(MAX_CLAIM, self._number // 4):
            self._freed()

    def cancel(self, collection_ids: set[int]) -> list[Claim]:
        """Cancel the rollouts of these collections. Return their claims, without rollouts that have just ended."""
        running = list(self._running.items())
        return [claim for task, (claim, _) in running if claim.collection_id in collection_ids and task.cancel()]

    async def wait(self, seconds: float) -> None:
        """Wait until all rollouts have ended, for at most `seconds`."""
        await asyncio.wait(list(self._running), timeout=seconds)

    async def cancel_all(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
