"""Seats at judge models: how many questions each is asked at once, beside the rollouts that it attempts itself."""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from apps.gym.calls.memory_budget import parked
from apps.gym.calls.time_limits import stopped_clocks
from apps.policies.models import PolicyModel


class Bench:
    """The seats at one judge in this worker; entered for one question. Used by the worker's loop alone."""

    def __init__(self, room: int) -> None:
        self.room = room
        """Questions and rollouts together: this worker's part of the model's concurrency."""
        self.attempting = 0
        self.asked = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        return self.asked + len(self._waiting)

    async def __aenter__(self) -> None:
        if self._waiting or not self._has_room():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                with stopped_clocks(), parked():
                    await waiter  # `wake` has taken the seat for it
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._rise()
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise
            return
        self.asked += 1

    async def __aexit__(self, *_: object) -> None:
        self._rise()

    def wake(self) -> None:
        """Seat who waits, in order, as far as there is room."""
        while self._waiting and self._has_room():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.asked += 1
                waiter.set_result(None)

    def _has_room(self) -> bool:
        # One question always goes: a model that is busy attempting must not keep what it judges from ending.
        return self.asked < max(1, self.room - self.attempting)

    def _rise(self) -> None:
        self.asked -= 1
        self.wake()


class JudgeSeats:
    """One worker's benches. A judge's concurrency bounds questions and rollouts together, over all workers; questions
    go first, since whoever waits for a verdict is nearly done."""

    def __init__(self) -> None:
        self._benches: dict[int, Bench] = {}

    def of(self, judge: PolicyModel, attempts: PolicyModel) -> AbstractAsyncContextManager[Any]:
        """The bench for what `attempts` made. A model that judges its own attempts has room already: it is asked one
        question at a time for a rollout that does not ask it anything else."""
        if judge.pk == attempts.pk:
            return nullcontext()
        bench = self._benches.get(judge.pk)
        if bench is None:
            bench = self._benches[judge.pk] = Bench(judge.concurrency)
        return bench

    def taken(self) -> Counter[int]:
        """Questions asked and waiting, by judge model."""
        return Counter({pk: bench.taken for pk, bench in list(self._benches.items()) if bench.taken})

    def learn(self, rooms: Mapping[int, int], attempting: Mapping[int, int]) -> None:
        """This worker's parts of the judges' concurrency, and how many rollouts each model attempts here now."""
        for pk, bench in list(self._benches.items()):
            bench.room = rooms.get(pk, bench.room)
            bench.attempting = attempting.get(pk, 0)
            bench.wake()
