"""Reviews as a file: one line each, oldest first, in constant memory."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from django.db.models import Count, F, Max, Q, QuerySet
from django.db.models.functions import Coalesce

from apps.accounts.audit_log import record
from apps.reviews.models import Queue, Review

CHUNK_ROWS = 500
COLUMNS = [
    "id",
    "queue",
    "item",
    "task",
    "reviewer",
    "kind",
    "rollouts",
    "is_swapped",
    "choice",
    "winner",
    "strength",
    "ranks",
    "scores",
    "reasons",
    "note",
    "confidence",
    "repeat_of",
    "is_adjudication",
    "saw_votes",
    "could_see_results",
    "started_at",
    "submitted_at",
    "seconds",
    "status",
    "skip_reason",
    "skipped_at",
    "rubric",
    "seq",
]
# Spreadsheets would evaluate such a cell as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_rows(reviews: QuerySet[Review]) -> Iterator[dict[str, Any]]:
    """Yield the rows. `rollouts` are in the shown order; `winner` is the rollout that the verdict of a pair prefers."""
    last = 0
    # Annotate only the needed names instead of joining whole rows.
    found = reviews.defer("draft").annotate(**_BESIDE).order_by("pk")
    # Yield entries with one query per chunk, so that no cursor stays open for a slow reader.
    while rows := list(found.filter(pk__gt=last).prefetch_related("verdicts")[:CHUNK_ROWS]):
        last = rows[-1].pk
        yield from map(_as_row, rows)


def write_ndjson(reviews: QuerySet[Review]) -> Iterator[bytes]:
    for row in read_rows(reviews):
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def write_csv(reviews: QuerySet[Review]) -> Iterator[bytes]:
    """Yield CSV with a header; lists and objects are JSON in their cell."""
    yield _write(COLUMNS)
    for row in read_rows(reviews):
        yield _write([_cell(row[name]) for name in COLUMNS])


FORMATS: dict[str, tuple[str, Callable[[QuerySet[Review]], Iterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", write_csv),
    "ndjson": ("application/x-ndjson", write_ndjson),
}


def record_export(
    *, user: object, reviews: QuerySet[Review], format: str, target: str = "", filters: Mapping[str, Any] | None = None
) -> None:
    """Record the export in the audit log: number of reviews, format and filters."""
    told = {name: value for name, value in (filters or {}).items() if value not in (None, "")}
    record(user=user, action="review.export", target=target, format=format, reviews=reviews.count(), filters=told)


def tag_reviews(reviews: QuerySet[Review], *, format: str) -> tuple[str, QuerySet[Review]]:
    """Return an ETag of the file, and its reviews. Reviews that start while it is read are in the next file."""
    found = reviews.order_by().aggregate(
        last=Max("pk"),
        submitted_at=Max("submitted_at"),
        skipped_at=Max("skipped_at"),
        people=Count("reviewer"),
        **{status: Count("pk", filter=Q(status=status)) for status in Review.Status.values},
    )
    sql, parameters = reviews.order_by().query.sql_with_params()
    state = orjson.dumps([format, sql, [str(one) for one in parameters], *found.values()])
    return f'"{hashlib.sha256(state).hexdigest()}"', reviews.filter(pk__lte=found["last"] or 0)


_BESIDE = {
    "told_kind": F("queue__kind"),
    "told_reviewer": F("reviewer__username"),
    "told_rubric": F("rubric__slug"),
    "told_task": Coalesce(F("item__task_id"), F("rollout__task_id")),
}


def _as_row(review: Any) -> dict[str, Any]:
    """Return the row of a review annotated with `_BESIDE`."""
    verdicts = list(review.verdicts.all()) if review.told_kind == Queue.Kind.PAIRWISE else []
    verdict = verdicts[0] if verdicts else None
    winner = {"low": verdict.low_id, "high": verdict.high_id}.get(verdict.outcome) if verdict else None
    return {
        "id": review.pk,
        "queue": review.queue_id,
        "item": review.item_id,
        "task": review.told_task,
        "reviewer": review.told_reviewer,
        "kind": review.told_kind or "score",
        "rollouts": review.arrangement or ([review.rollout_id] if review.rollout_id else []),
        "is_swapped": review.is_swapped,
        "choice": review.choice,
        "winner": winner,
        "strength": verdict.strength if verdict else None,
        "ranks": review.ranks,
        "scores": review.scores,
        "reasons": review.reasons,
        "note": review.note,
        "confidence": review.confidence,
        "repeat_of": review.repeat_of_id,
        "is_adjudication": review.is_adjudication,
        "saw_votes": review.saw_votes,
        "could_see_results": review.could_see_results,
        "started_at": review.started_at,
        "submitted_at": review.submitted_at,
        "seconds": review.seconds,
        "status": review.status,
        "skip_reason": review.skip_reason,
        "skipped_at": review.skipped_at,
        "rubric": review.told_rubric,
        "seq": review.seq,
    }


def _cell(value: Any) -> str:
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode() if value else ""
    text = "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _write(cells: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()
