"""Limit the calls in flight to each judge model, which may also run rollouts as a policy model."""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from apps.gym.calls.memory_budget import parked
from apps.gym.calls.time_limits import stopped_clocks
from apps.policies.models import PolicyModel


class JudgeLimiter:
    """Limit this worker's calls to one judge. Use it as a context manager around a call, on the event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Maximum judge calls plus rollouts of the model: this worker's share of the model's concurrency limit."""
        self.running_rollouts = 0
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        return self.in_flight + len(self._waiting)

    async def __aenter__(self) -> None:
        if self._waiting or not self._has_free_seat():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                with stopped_clocks(), parked():
                    await waiter  # `wake` counted this call
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._release()
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise
            return
        self.in_flight += 1

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def wake(self) -> None:
        """Start waiting calls in order, up to the limit."""
        while self._waiting and self._has_free_seat():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.in_flight += 1
                waiter.set_result(None)

    def _has_free_seat(self) -> bool:
        # One call is always allowed: a model busy with rollouts must not block the rollouts that it judges.
        return self.in_flight < max(1, self.limit - self.running_rollouts)

    def _release(self) -> None:
        self.in_flight -= 1
        self.wake()


class JudgeSeats:
    """The limits of one worker for all judges.

    The concurrency limit of a judge model covers judge calls and rollouts of all workers. Judge calls take precedence,
    because their rollouts are almost finished.
    """

    def __init__(self) -> None:
        self._limiters: dict[int, JudgeLimiter] = {}

    def of(self, judge: PolicyModel, policy_model: PolicyModel) -> AbstractAsyncContextManager[Any]:
        """Return the limiter of `judge` for calls that judge rollouts of `policy_model`.

        There is no limit if a model judges its own rollouts: a rollout makes no other call while it waits for the
        judge.
        """
        if judge.pk == policy_model.pk:
            return nullcontext()
        limiter = self._limiters.get(judge.pk)
        if limiter is None:
            limiter = self._limiters[judge.pk] = JudgeLimiter(judge.concurrency)
        return limiter

    def taken(self) -> Counter[int]:
        """Return the number of judge calls in flight and waiting, by judge model id."""
        return Counter({pk: limiter.taken for pk, limiter in list(self._limiters.items()) if limiter.taken})

    def set_limits(self, limits: Mapping[int, int], running_rollouts: Mapping[int, int]) -> None:
        """Set this worker's limits by judge id, and its number of running rollouts by policy model id."""
        for pk, limiter in list(self._limiters.items()):
            limiter.limit = limits.get(pk, limiter.limit)
            limiter.running_rollouts = running_rollouts.get(pk, 0)
            limiter.wake()
