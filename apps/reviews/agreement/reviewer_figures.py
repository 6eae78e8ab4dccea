"""Figures of each reviewer in a queue: amount, speed and self-consistency, in a constant number of queries."""

from collections import Counter, defaultdict
from datetime import datetime
from statistics import median
from typing import Any

import msgspec

from apps.reviews.models import Queue, Review
from apps.reviews.queues.hidden_items import SKIPPED

_LEFT = "deleted user"


class Reviewer(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one reviewer.

    `seconds` is the median time per item, and `per_hour` the number of reviews per hour of review time, without breaks
    between items. `last_at` is the time of the last submission or skip. `first_side` is the share of A among verdicts
    that prefer a side. Of `repeated` hidden repeats, `consistent` equal the first answer. In `could_see_results` of the
    `submitted` reviews, the reviewer could see results.
    """

    username: str
    submitted: int
    skipped: int
    open: int
    seconds: float | None
    per_hour: float | None
    last_at: datetime | None
    first_side: float | None
    repeated: int
    consistent: int
    could_see_results: int


_COLUMNS = (
    *("reviewer__username", "status", "choice", "seconds", "submitted_at", "skipped_at"),
    *("skip_reason", "repeat_of", "could_see_results"),
)
"""Only the needed columns: a queue may have tens of thousands of reviews."""


def read_reviewers(queue: Queue) -> list[Reviewer]:
    """Return the reviewers, most active first."""
    reviews = Review.objects.filter(queue=queue, is_adjudication=False)
    by_person: dict[str, list[Any]] = defaultdict(list)
    for row in reviews.order_by("pk").values_list(*_COLUMNS, named=True):
        by_person[row.reviewer__username or _LEFT].append(row)
    repeats = _read_repeats(queue)
    found = [_reviewer(name, rows, repeats[name]) for name, rows in by_person.items()]
    return sorted(found, key=lambda one: (-one.submitted, one.username))


def _read_repeats(queue: Queue) -> dict[str, list[bool]]:
    """Return, for each reviewer, whether each hidden repeat equals the first answer.

    Both reviews must be active: a withdrawn first answer cannot be compared.
    """
    stand = {"status": Review.Status.SUBMITTED, "repeat_of__status": Review.Status.SUBMITTED}
    repeats = Review.objects.filter(queue=queue, is_adjudication=False, **stand)
    found: dict[str, list[bool]] = defaultdict(list)
    for each in repeats.select_related("reviewer", "repeat_of").prefetch_related("verdicts", "repeat_of__verdicts"):
        found[each.reviewer.username if each.reviewer else _LEFT].append(_is_consistent(each))
    return found


def _reviewer(name: str, rows: list[Any], repeats: list[bool]) -> Reviewer:
    submitted = [each for each in rows if each.status == Review.Status.SUBMITTED]
    skipped = [each for each in rows if each.status == Review.Status.SKIPPED]
    seconds = [each.seconds for each in submitted if each.seconds is not None]
    hours = sum(seconds) / 3600
    sides = Counter(each.choice[0] for each in submitted if each.choice in {"a", "a_much", "b", "b_much"})
    return Reviewer(
        username=name,
        submitted=len(submitted),
        # A skipped item also ends its hidden repeat, which does not count as skipped.
        skipped=sum(each.repeat_of is None or each.skip_reason != SKIPPED for each in skipped),
        open=sum(each.status == Review.Status.OPEN for each in rows),
        seconds=median(seconds) if seconds else None,
        per_hour=len(seconds) / hours if hours > 0 else None,
        last_at=max((at for each in rows if (at := each.submitted_at or each.skipped_at)), default=None),
        first_side=sides["a"] / sides.total() if sides else None,
        repeated=len(repeats),
        consistent=sum(repeats),
        could_see_results=sum(each.could_see_results for each in submitted),
    )


def _is_consistent(repeat: Review) -> bool:
    """Return True if the repeat has the same outcomes, or the same scores except for long texts."""
    first = repeat.repeat_of
    assert first is not None

    def verdicts(review: Review) -> dict[tuple[int, int], str]:
        return {(each.low_id, each.high_id): each.outcome for each in review.verdicts.all()}

    def scores(review: Review) -> dict[str, Any]:
        return {key: value for key, value in review.scores.items() if not isinstance(value, str) or len(value) <= 100}

    return verdicts(first) == verdicts(repeat) and scores(first) == scores(repeat)
