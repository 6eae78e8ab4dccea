"""What the page of a rollout shows of one attempt: all of it, or what came after the last event that the page has.

The same parts are the page's first rendering, a message of its socket and the answer to its poll.
"""

import re
from typing import Any, NamedTuple, Self

from django.db.models import Count, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.overview.error_causes import CAUSES
from apps.dashboard.traces.card_building import build_trace
from apps.dashboard.traces.outline import outline
from apps.dashboard.traces.trace_reading import events_of, find_capture, open_trace, place_of_error, rows_of
from apps.rollouts.metrics.attempt_history import PastAttempt, read_attempts
from apps.rollouts.models import Rollout, RolloutQuerySet, TraceEvent


class Mark(NamedTuple):
    """What a page has: the rollout's status, which attempt, and the number after its last event's."""

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
    """Rows with all that the parts show of them."""
    return Rollout.objects.select_related("task", "collection__policy_model", "collection__agent")


def read_parts(rollout: Rollout, reader: User | None, attempt: int, *, step: int | None = None) -> dict[str, Any]:
    """What a page of this attempt shows at first. The row has to be read before: once it has ended, all its events are
    stored. While it runs its newest events are among them."""
    runs = attempt == rollout.attempt and rollout.finished_at is None
    opened = open_trace(rollout, attempt, step=step, at_end=runs)
    mark = Mark(rollout.status, attempt, opened.last_seq + 1)
    return {**_parts(rollout, reader, mark), "opened": opened}


def read_news(rollout: Rollout, reader: User | None, seen: Mark) -> dict[str, Any] | None:
    """The same parts with the cards that are new since `seen` or got a result since; None where nothing changed.

    Another attempt than the one that was seen is new altogether.
    """
    known = seen.next if seen.attempt == rollout.attempt else 0
    events = events_of(rollout, rollout.attempt)
    newest = events.order_by("-seq").values_list("seq", flat=True).first()
    # Asked often and mostly for nothing: one look at the index answers that.
    if seen == Mark(rollout.status, rollout.attempt, 0 if newest is None else newest + 1):
        return None
    trace = build_trace(rows_of(events.filter(seq__gte=_turn_of(events, known))))
    mark = Mark(rollout.status, rollout.attempt, max(trace.last_seq + 1, known))
    cards = tuple(card for card in trace.cards if card.last_seq >= known)
    return {**_parts(rollout, reader, mark), "cards": cards, "lines": outline(cards), "is_news": True}


def _turn_of(events: QuerySet[TraceEvent], known: int) -> int:
    """Where the last known turn begins: results that are still to come belong to its calls."""
    turns = events.filter(seq__lt=known, kind="model_call").order_by("-seq").values_list("seq", flat=True)
    return next(iter(turns[:1]), 0)


def _parts(rollout: Rollout, reader: User | None, mark: Mark) -> dict[str, Any]:
    attempt = mark.attempt
    is_latest = attempt == rollout.attempt
    attempts = read_attempts(rollout)
    return {
        "rollout": rollout,
        "attempt": attempt,
        "attempts": attempts,
        "shown": next((each for each in attempts if each.attempt == attempt), None),
        "before": _before(attempts, attempt),
        "is_latest": is_latest,
        "is_live": is_latest and rollout.finished_at is None,
        "counts": _count_kinds(rollout, attempt) if is_latest and rollout.finished_at is None else None,
        # Comments are about the latest attempt: an earlier one has other events under the same numbers.
        "may_comment": is_latest and user_may(reader, Permission.COMMENT),
        "error_seq": place_of_error(rollout, attempt) if rollout.error_kind else None,
        "cause": CAUSES.get(rollout.error_kind, "It failed"),
        "components": sorted(rollout.components.items()),
        "seconds": _seconds(rollout),
        "capture": find_capture(rollout, attempt),
        "mark": mark,
    }


def _seconds(rollout: Rollout) -> list[tuple[str, float]]:
    """Where the time went. Tools of one turn may run at once, so the parts may sum to more than the whole."""
    parts = (("model", rollout.model_time), ("tools", rollout.tool_time), ("verifier", rollout.verify_time))
    return [(name, spent) for name, spent in parts if spent]


def _before(attempts: list[PastAttempt], attempt: int) -> PastAttempt | None:
    """The attempt whose end is why this one was made."""
    return next((each for each in attempts if each.attempt == attempt - 1), None)


def _count_kinds(rollout: Rollout, attempt: int) -> dict[str, int]:
    """The row counts when the attempt has ended; until then its events are counted."""
    counted = rollout.events.filter(attempt=attempt).order_by().values_list("kind").annotate(events=Count("seq"))
    return {"model_call": 0, "tool_result": 0, **dict(counted)}
