"""Progress of a collection for its page."""

from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from apps.agents.models import Agent
from apps.dashboard.charts.shares import Part, draw_shares
from apps.dashboard.chrome.number_formats import count_words
from apps.rollouts.metrics.cached_figures import CachedFigures
from apps.rollouts.metrics.page_figures import PageFigures, count_running
from apps.rollouts.models import Collection
from apps.rollouts.steering.holds import Holds, explain_missing_worker, explain_pause, find_holds


@dataclass(frozen=True, slots=True)
class Progress:
    """`collection` has the counters at `as_of`. `is_fresh` is False while a worker computes newer figures."""

    collection: Collection
    running: int
    as_of: datetime
    mean_reward: float | None
    is_fresh: bool = True
    holds: Holds = field(default_factory=list)
    missing_worker: str = ""

    @property
    def queued(self) -> int:
        # Cached counters and current running rows are from different moments, so the difference may be negative.
        return max(0, self.collection.total - self.collection.ended - self.running)

    @property
    def waits_for_agent(self) -> bool:
        """Return True if rollouts wait until an external agent takes them."""
        is_running = self.collection.state == Collection.State.RUNNING
        return is_running and self.queued > 0 and self.collection.agent.kind == Agent.Kind.EXTERNAL

    @property
    def phases(self) -> list[Part]:
        """Return the parts of the progress bar in per cent, left to right."""
        collection = self.collection
        return draw_shares(
            [
                ("completed", collection.completed, "ok"),
                ("failed", collection.failed, "bad"),
                ("cancelled", collection.cancelled, "muted"),
                ("running", self.running, "busy"),
                ("queued", self.queued, "queued"),
            ]
        )

    @property
    def pause(self) -> str:
        return explain_pause(self.collection)

    @property
    def untold_usage(self) -> str:
        """Return the effect of replies without token counts on the figures; empty if there are none."""
        number = self.collection.calls_without_usage
        if not number:
            return ""
        replies = count_words(number, "reply", "replies")
        limits = [
            name
            for name, limit in (("token", self.collection.max_tokens), ("cost", self.collection.max_cost))
            if limit is not None
        ]
        said = f"{replies} {'has' if number == 1 else 'have'} no token counts. "
        said += "It does not count" if number == 1 else "They do not count"
        if not limits:
            return f"{said} towards limits and cost."
        kind, these = ("limits", "these") if len(limits) > 1 else ("limit", "it")
        return f"{said} towards the {' and '.join(limits)} {kind}, so the collection may exceed {these}."

    @property
    def limits(self) -> list[tuple[str, str, float, float]]:
        """Return (name, unit, used amount, limit) of each limit that is set. The unit is the format of both numbers."""
        collection = self.collection
        tokens = collection.input_tokens + collection.output_tokens + collection.judge_tokens
        used = [
            ("Time", "duration", self.elapsed if collection.started_at else 0.0, collection.max_seconds),
            ("Tokens", "number", tokens, collection.max_tokens),
            ("Cost", "usd", collection.cost, collection.max_cost),
        ]
        return [(name, unit, amount, limit) for name, unit, amount, limit in used if limit is not None]

    @property
    def percent(self) -> int:
        return 100 * self.collection.ended // self.collection.total if self.collection.total else 0

    @property
    def elapsed(self) -> float:
        """Return the seconds since the first rollout was claimed, else since the collection was planned."""
        began = self.collection.started_at or self.collection.created_at
        return max(0.0, ((self.collection.finished_at or self.as_of) - began).total_seconds())

    @property
    def per_second(self) -> float | None:
        """Return rollouts ended per second since the first was claimed; None if none was, as in an import."""
        if self.collection.started_at is None:
            return None
        return self.collection.ended / self.elapsed if self.elapsed and self.collection.ended else None

    @property
    def pace(self) -> str:
        """Return the throughput in a unit with a readable number."""
        rate = self.per_second
        if rate is None:
            return "–"
        return f"{rate:,.1f} rollouts/s" if rate >= 1 else f"{60 * rate:,.1f} rollouts/min"

    @property
    def is_settled(self) -> bool:
        """Return True if nothing changes any more. A cancelled collection still has rows in flight."""
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
        """Return the expected seconds left at the current rate; None if nothing is running or can start."""
        rate = self.per_second
        is_held = any(hold.blocks for hold in self.holds)
        if self.collection.state != Collection.State.RUNNING or is_held or not rate or not self.running:
            return None
        return (self.collection.total - self.collection.ended) / rate


def mark_changes(collection: Collection, running: int) -> str:
    """Return a text that differs when the figures of the collection's page do."""
    parts = (collection.state, collection.pause_reason, collection.total, collection.ended, collection.retried)
    return " ".join(map(str, (*parts, collection.rewarded, collection.reward_sum, running)))


def read_progress(collection: Collection, kept: CachedFigures[PageFigures]) -> Progress:
    """Return the progress with the figures of `read_figures`, or with the current counters if there are none yet."""
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
