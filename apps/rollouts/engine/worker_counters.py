"""Counters of a worker since its start, for `/metrics`. Stored as JSON with every heartbeat."""

import time
from bisect import bisect_left
from typing import Any

from apps.gym.calls.observers import Outcome
from apps.gym.traces.events import JudgeCall, ModelCall, ToolResult, TraceUnion, Verification

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds of the histogram buckets, in seconds. An additional bucket holds longer durations."""

_PHASES: dict[type[TraceUnion], str] = {
    ModelCall: "model_call",
    ToolResult: "tool_call",
    JudgeCall: "judge_call",
    Verification: "verification",
}
"""The phase that an event of this type counts towards."""


class Histogram:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.sum = 0.0
        self.counts = [0] * (len(BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.counts[bisect_left(BUCKETS, seconds)] += 1


class Meters:
    """Counters by name and labels, and histograms of seconds by phase. Used only on the event loop."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset all counters, for a new identity."""
        self._counts: dict[tuple[str, ...], int] = {}
        phases = {kind: Histogram() for kind in _PHASES}
        self._by_type: dict[type, Histogram] = {**phases}
        self._phases = {_PHASES[kind]: phase for kind, phase in phases.items()} | {"rollout": Histogram()}
        self._ended = 0
        self._last_read: tuple[float, int] | None = None

    def count(self, *name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by

    def count_try(self, kind: str, slug: str, outcome: Outcome) -> None:
        self.count("tries", kind, slug, outcome)

    def count_event(self, event: TraceUnion) -> None:
        phase = self._by_type.get(type(event))
        if phase is None:
            return
        phase.add(event.duration)
        match event:
            case ToolResult():
                self.count("tool_calls", event.error or "ok")
            case JudgeCall():
                self.count("judge_tokens", "input", by=event.usage.get("input_tokens", 0))
                self.count("judge_tokens", "output", by=event.usage.get("output_tokens", 0))
        if isinstance(event, ModelCall | JudgeCall) and event.retries:
            self.count("retries", by=event.retries)

    def count_end(self, status: str, error_kind: str, duration: float, input_tokens: int, output_tokens: int) -> None:
        self._phases["rollout"].add(duration)
        self.count("attempts", status, error_kind)
        self._ended += 1
        self.count("tokens", "input", by=input_tokens)
        self.count("tokens", "output", by=output_tokens)

    def read(self) -> dict[str, Any]:
        """Return the counters as JSON-compatible values. Thread-safe.

        `counts` has (name, labels, number). `phases` has sums of seconds and counts by bucket (see BUCKETS). `rate` is
        the number of attempts finished per second since the last call; None in the first call.
        """
        return {
            # Copy first: the event loop continues counting while the heartbeat thread reads.
            "counts": [[*name, number] for name, number in self._counts.copy().items()],
            "rate": self._rate(),
            "phases": {
                name: {"sum": round(phase.sum, 6), "counts": phase.counts[:]} for name, phase in self._phases.items()
            },
        }

    def _rate(self) -> float | None:
        now, before = (time.monotonic(), self._ended), self._last_read
        self._last_read = now
        if before is None or now[0] <= before[0]:
            return None
        return round((now[1] - before[1]) / (now[0] - before[0]), 3)
