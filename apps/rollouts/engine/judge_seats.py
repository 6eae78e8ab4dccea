"""Seats at judge models: limit the calls in flight to each judge, which may also run rollouts itself."""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from apps.gym.calls.memory_budget import parked
from apps.gym.calls.time_limits import stopped_clocks
from apps.policies.models import PolicyModel


class Bench:
    """Seats at one judge in this worker: a context manager for one call. Used only by the loop of the worker."""

    def __init__(self, room: int) -> None:
        self.room = room
        """Maximum judge calls and rollouts together: this worker's share of the model's concurrency."""
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
                    await waiter  # `wake` has taken the seat
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
        """Admit waiting questions in order, up to the limit."""
        while self._waiting and self._has_room():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.asked += 1
                waiter.set_result(None)

    def _has_room(self) -> bool:
        # One question is always admitted: a model busy with rollouts must not block the rollouts that it judges.
        return self.asked < max(1, self.room - self.attempting)

    def _rise(self) -> None:
        self.asked -= 1
        self.wake()


class JudgeSeats:
    """The judge seats of one worker.

    The concurrency limit of a judge covers questions and rollouts of all workers. Questions take precedence, because
    their rollouts are almost finished.
    """

    def __init__(self) -> None:
        self._benches: dict[int, Bench] = {}

    def of(self, judge: PolicyModel, attempts: PolicyModel) -> AbstractAsyncContextManager[Any]:
        """Return the seats for attempts of the model `attempts`.

        A model that judges its own attempts needs no extra seat: while a rollout waits for the judge, it makes no
        other call.
        """
        if judge.pk == attempts.pk:
            return nullcontext()
        bench = self._benches.get(judge.pk)
        if bench is None:
            bench = self._benches[judge.pk] = Bench(judge.concurrency)
        return bench

    def taken(self) -> Counter[int]:
        """Return the number of questions in flight and waiting, by judge model."""
        return Counter({pk: bench.taken for pk, bench in list(self._benches.items()) if bench.taken})

    def learn(self, rooms: Mapping[int, int], attempting: Mapping[int, int]) -> None:
        """Set this worker's shares of the judges' concurrency, and its number of running rollouts per model."""
        for pk, bench in list(self._benches.items()):
            bench.room = rooms.get(pk, bench.room)
            bench.attempting = attempting.get(pk, 0)
            bench.wake()
