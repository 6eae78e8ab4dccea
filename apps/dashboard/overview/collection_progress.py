"""The progress of a collection as its page shows it."""

from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from apps.rollouts.metrics.cached_figures import Kept
from apps.rollouts.metrics.page_figures import PageFigures, count_running
from apps.rollouts.models import Collection
from apps.rollouts.steering.holds import Holds, explain_missing_worker, explain_pause, find_holds


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    count: int
    tone: str
    x: float  # per cent of the bar, left edge
    width: float


@dataclass(frozen=True, slots=True)
class Spent:
    """`unit` says how both numbers are written: as a duration, a number or USD."""

    name: str
    unit: str
    amount: float
    limit: float


@dataclass(frozen=True, slots=True)
class Progress:
    """`collection` has the counters of `as_of`. `is_fresh` is False while a worker measures newer figures."""

    collection: Collection
    running: int
    as_of: datetime
    mean_reward: float | None
    is_fresh: bool = True
    holds: Holds = field(default_factory=list)
    missing_worker: str = ""

    @property
    def queued(self) -> int:
        # Counters that were kept and the rows that run now are of different moments.
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
    def pause(self) -> str:
        return explain_pause(self.collection)

    @property
    def untold_usage(self) -> str:
        """What the replies that told no tokens mean for what is counted; nothing where all told them."""
        number = self.collection.calls_without_usage
        if not number:
            return ""
        replies = "1 reply" if number == 1 else f"{number:,} replies"
        limits = [
            name
            for name, limit in (("tokens", self.collection.max_tokens), ("cost", self.collection.max_cost))
            if limit is not None
        ]
        held = f": its limit{'s' if len(limits) > 1 else ''} of {' and '.join(limits)} cannot hold" if limits else ""
        return f"{replies} did not tell their tokens, which count neither as tokens nor as cost{held}."

    @property
    def limits(self) -> list[Spent]:
        """How much of each limit in all is used up; those that are not set are left out."""
        collection = self.collection
        tokens = collection.input_tokens + collection.output_tokens + collection.judge_tokens
        used = [
            ("Time", "duration", self.elapsed if collection.started_at else 0.0, collection.max_seconds),
            ("Tokens", "number", tokens, collection.max_tokens),
            ("Cost", "usd", collection.cost, collection.max_cost),
        ]
        return [Spent(name, unit, amount, limit) for name, unit, amount, limit in used if limit is not None]

    @property
    def percent(self) -> int:
        return 100 * self.collection.ended // self.collection.total if self.collection.total else 0

    @property
    def elapsed(self) -> float:
        """Seconds since its first rollout was claimed, or since it was planned while none was."""
        began = self.collection.started_at or self.collection.created_at
        return max(0.0, ((self.collection.finished_at or self.as_of) - began).total_seconds())

    @property
    def per_second(self) -> float | None:
        """Rollouts ended a second since the first was claimed; None where none ever was, as in an import."""
        if self.collection.started_at is None:
            return None
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
    def is_final(self) -> bool:
        """Return True once the page shows the last figures of a settled collection and can stop following it."""
        return self.is_settled and self.is_fresh

    @property
    def mark(self) -> str:
        return mark_changes(self.collection, self.running)

    @property
    def seconds_left(self) -> float | None:
        """By the pace so far; None while nothing runs or can be started: nothing then comes nearer to its end."""
        rate = self.per_second
        is_held = any(hold.blocks for hold in self.holds)
        if self.collection.state != Collection.State.RUNNING or is_held or not rate or not self.running:
            return None
        return (self.collection.total - self.collection.ended) / rate


def mark_changes(collection: Collection, running: int) -> str:
    """Return a text that differs when the figures of the collection's page do."""
    parts = (collection.state, collection.pause_reason, collection.total, collection.ended, collection.retried)
    return " ".join(map(str, (*parts, collection.rewarded, collection.reward_sum, running)))


def read_progress(collection: Collection, kept: Kept[PageFigures]) -> Progress:
    """`kept` comes from `read_figures`. While nothing has been measured, the counters of now are shown."""
    figures = kept.figures
    running = count_running(collection) if figures is None else figures.running
    idles = collection.state == Collection.State.RUNNING and not running
    return Progress(
        collection=collection,
        running=running,
        as_of=timezone.now() if figures is None else figures.as_of,
        mean_reward=collection.mean_reward if figures is None else figures.metrics.mean_reward,
        is_fresh=kept.is_fresh,
        holds=find_holds(collection),
        missing_worker=explain_missing_worker(collection) if idles else "",
    )
