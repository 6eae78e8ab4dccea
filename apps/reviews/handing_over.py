"""The reviews of a queue as a file: a line for each submitted review, the oldest first, in flat memory."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import orjson

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
    "started_at",
    "submitted_at",
    "seconds",
]
# A spreadsheet would take such a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_rows(queue: Queue) -> Iterator[dict[str, Any]]:
    """`rollouts` stand in the order in which they were shown; `winner` is the rollout that a pair's verdict is for."""
    last = 0
    reviews = Review.objects.filter(queue=queue).submitted().select_related("reviewer", "item")
    # A chunk is a query, so that nothing stays open for a slow reader.
    while rows := list(reviews.filter(pk__gt=last).prefetch_related("verdicts").order_by("pk")[:CHUNK_ROWS]):
        last = rows[-1].pk
        yield from (_as_row(queue, review) for review in rows)


def write_ndjson(queue: Queue) -> Iterator[bytes]:
    for row in read_rows(queue):
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def write_csv(queue: Queue) -> Iterator[bytes]:
    """With a header; lists and objects are JSON in their cell."""
    yield _write(COLUMNS)
    for row in read_rows(queue):
        yield _write([_cell(row[name]) for name in COLUMNS])


FORMATS: dict[str, tuple[str, Callable[[Queue], Iterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", write_csv),
    "ndjson": ("application/x-ndjson", write_ndjson),
}


def _as_row(queue: Queue, review: Review) -> dict[str, Any]:
    verdicts = list(review.verdicts.all()) if queue.kind == Queue.Kind.PAIRWISE else []
    verdict = verdicts[0] if verdicts else None
    winner = {"low": verdict.low_id, "high": verdict.high_id}.get(verdict.outcome) if verdict else None
    return {
        "id": review.pk,
        "queue": queue.pk,
        "item": review.item_id,
        "task": review.item.task_id if review.item else None,
        "reviewer": review.reviewer.username if review.reviewer else None,
        "kind": queue.kind,
        "rollouts": review.arrangement,
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
        "started_at": review.started_at,
        "submitted_at": review.submitted_at,
        "seconds": review.seconds,
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
