"""How far a collection is, as its page and its socket show it."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from apps.rollouts.models import Collection, Rollout


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    count: int
    tone: str
    x: float  # per cent of the bar, left edge
    width: float


@dataclass(frozen=True, slots=True)
class Progress:
    collection: Collection
    running: int
    now: datetime

    @property
    def queued(self) -> int:
        # The counters and the count of running rows are read one after the other: a row may be in neither or in both.
        return max(0, self.collection.total - self.collection.ended - self.running)

    @property
    def phases(self) -> list[Phase]:
        """The parts of the bar in per cent, left to right."""
        collection = self.collection
        parts = [
            ("completed", collection.completed, "ok"),
            ("failed", collection.failed, "bad"),
            ("cancelled", collection.cancelled, "muted"),
            ("running", self.running, "busy"),
            ("queued", self.queued, "queued"),
        ]
        whole = max(1, sum(count for _, count, _ in parts))
        phases, x = [], 0.0
        for name, count, tone in parts:
            width = 100 * count / whole
            phases.append(Phase(name, count, tone, round(x, 3), round(width, 3)))
            x += width
        return phases

    @property
    def percent(self) -> int:
        return 100 * self.collection.ended // self.collection.total if self.collection.total else 0

    @property
    def elapsed(self) -> float:
        return max(0.0, ((self.collection.finished_at or self.now) - self.collection.created_at).total_seconds())

    @property
    def per_second(self) -> float | None:
        """Rollouts ended a second since the collection was planned."""
        return self.collection.ended / self.elapsed if self.elapsed and self.collection.ended else None

    @property
    def pace(self) -> str:
        """The throughput in the unit that gives a readable number."""
        rate = self.per_second
        if rate is None:
            return "–"
        return f"{rate:,.1f} /s" if rate >= 1 else f"{60 * rate:,.1f} /min"

    @property
    def is_settled(self) -> bool:
        """Nothing moves any more: a cancelled collection still has rows in flight that are dropped or stored."""
        return self.collection.is_finished and not self.running

    @property
    def seconds_left(self) -> float | None:
        """By the pace so far; None while nothing runs, since nothing then comes nearer to its end."""
        rate = self.per_second
        if self.collection.is_finished or not rate or not self.running:
            return None
        return (self.collection.total - self.collection.ended) / rate


def read_progress(collection: Collection) -> Progress:
    running = 0
    if collection.ended < collection.total:
        running = Rollout.objects.filter(collection=collection, status=Rollout.Status.RUNNING).count()
    return Progress(collection=collection, running=running, now=timezone.now())
