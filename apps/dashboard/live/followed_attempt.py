"""Data of one attempt for the page of a rollout: all events, or events after the last one of the page.

The first rendering of the page, socket messages and poll responses use the same parts.
"""

import re
from typing import Any, NamedTuple, Self

from django.db.models import Count, Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.tables.rollouts.row_texts import add_texts
from apps.dashboard.traces.card_building import build_trace
from apps.dashboard.traces.cards import group_lanes
from apps.dashboard.traces.outline import outline
from apps.dashboard.traces.trace_reading import (
    events_of,
    find_capture,
    lanes_of,
    open_trace,
    place_of_error,
    rows_of,
)
from apps.gym.outcomes import OUTCOMES
from apps.rollouts.metrics.attempt_history import PastAttempt, read_attempts
from apps.rollouts.models import Rollout, RolloutQuerySet, TraceEvent


class Mark(NamedTuple):
    """What a page already shows: the rollout's status, the attempt, and the number of the next event."""

    status: str
    attempt: int
    next: int

    def __str__(self) -> str:
        return f"{self.status}-{self.attempt}-{self.next}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        match = re.fullmatch(r"([a-z]{1,16})-([0-9]{1,5})-([0-9]{1,9})", text)
        return cls(match[1], int(match[2]), int(match[3])) if match else None


def followed_rollouts() -> RolloutQuerySet:
    """Return rollouts with all related rows that the page shows."""
    return Rollout.objects.select_related("task", "collection__policy_model", "collection__agent")


def read_parts(rollout: Rollout, reader: User | None, attempt: int, *, step: int | None = None) -> dict[str, Any]:
    """Return the initial parts of the page.

    Read `rollout` before calling: if it has ended, all its events are stored; while it runs, the newest events are
    included.
    """
    runs = attempt == rollout.attempt and rollout.finished_at is None
    opened = open_trace(rollout, attempt, step=step, at_end=runs)
    return {**_parts(rollout, reader, Mark(rollout.status, attempt, opened.last_seq + 1)), "opened": opened}


def read_news(rollout: Rollout, reader: User | None, seen: Mark) -> dict[str, Any] | None:
    """Return the parts with cards that are new since `seen` or got a result since; None if nothing changed.

    If `seen` is another attempt, everything is new.
    """
    known = seen.next if seen.attempt == rollout.attempt else 0
    events = events_of(rollout, rollout.attempt)
    newest = events.order_by("-seq").values_list("seq", flat=True).first()
    # Usually nothing is new, which this index lookup tells.
    if seen == Mark(rollout.status, rollout.attempt, 0 if newest is None else newest + 1):
        return None
    find_lanes = lanes_of(rollout, rollout.attempt)
    start = _turn_of(events, known)
    trace = build_trace(rows_of(events.filter(seq__gte=start)), find_lanes)
    changed: set[int] = set()
    if any(card.is_captured for card in trace.cards):
        # A call brings the results of its parent's tool calls.
        changed = find_lanes().changed_since(known)
        rows = events.filter(Q(seq__gte=start) | Q(seq__in=changed))
        trace = build_trace(rows_of(rows), find_lanes) if min(changed, default=start) < start else trace
    mark = Mark(rollout.status, rollout.attempt, max(trace.last_seq + 1, known))
    cards = tuple(card for card in trace.cards if card.last_seq >= known or card.seq in changed)
    return {
        **_parts(rollout, reader, mark),
        "cards": cards,
        "runs": group_lanes(cards),
        "lines": outline(cards),
        "is_news": True,
    }


def _turn_of(events: QuerySet[TraceEvent], known: int) -> int:
    """Return the start of the last known turn: outstanding results belong to its calls."""
    turns = events.filter(seq__lt=known, kind="model_call").order_by("-seq").values_list("seq", flat=True)
    return next(iter(turns[:1]), 0)


def _parts(rollout: Rollout, reader: User | None, mark: Mark) -> dict[str, Any]:
    attempt = mark.attempt
    is_latest = attempt == rollout.attempt
    attempts = read_attempts(rollout)
    add_texts([rollout], {"expected", "why"})
    return {
        "rollout": rollout,
        "attempt": attempt,
        "attempts": attempts,
        "shown": next((each for each in attempts if each.attempt == attempt), None),
        "before": _before(attempts, attempt),
        "is_latest": is_latest,
        "is_live": is_latest and rollout.finished_at is None,
        "counts": _count_kinds(rollout, attempt) if is_latest and rollout.finished_at is None else None,
        # Comments are about the latest attempt: earlier ones have other events with the same numbers.
        "may_comment": is_latest and user_may(reader, Permission.COMMENT),
        "error_seq": place_of_error(rollout, attempt) if rollout.error_kind else None,
        "cause": OUTCOMES[rollout.outcome].sentence if rollout.outcome else "",
        "components": sorted(rollout.components.items()),
        "seconds": _seconds(rollout),
        "capture": find_capture(rollout, attempt),
        "mark": mark,
    }


def _seconds(rollout: Rollout) -> list[tuple[str, float]]:
    """Return the seconds by phase. Tools of a turn may run concurrently, so the sum may exceed the duration."""
    parts = (("model", rollout.model_time), ("tools", rollout.tool_time), ("verifier", rollout.verify_time))
    return [(name, spent) for name, spent in parts if spent]


def _before(attempts: list[PastAttempt], attempt: int) -> PastAttempt | None:
    """Return the attempt whose failure caused this one, if any."""
    return next((each for each in attempts if each.attempt == attempt - 1), None)


def _count_kinds(rollout: Rollout, attempt: int) -> dict[str, int]:
    """Return the number of events by kind: from the row if the attempt has ended, else counted."""
    counted = rollout.events.filter(attempt=attempt).order_by().values_list("kind").annotate(events=Count("seq"))
    return {"model_call": 0, "tool_result": 0, **dict(counted)}
