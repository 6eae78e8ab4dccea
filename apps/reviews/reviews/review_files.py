"""Export reviews as a file, oldest first, in constant memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet
from django.db.models.functions import Coalesce

from apps.accounts.audit_log import record
from apps.accounts.keyset_reading import read_by_key
from apps.accounts.table_files import CHUNK_ROWS, table_formats, tag_table
from apps.reviews.models import Queue, Review

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


def read_rows(reviews: QuerySet[Review]) -> Iterator[dict[str, Any]]:
    """Yield one row per review. `rollouts` are in the order as shown; `winner` is the rollout preferred in a pair."""
    # Annotate only the needed names: joining whole rows is slower.
    found = reviews.defer("draft").annotate(**_JOINED_COLUMNS).prefetch_related("verdicts")
    yield from map(_as_row, read_by_key(found, size=CHUNK_ROWS))


FORMATS = table_formats(COLUMNS, read_rows)


def record_export(
    *, user: object, reviews: QuerySet[Review], format: str, target: str = "", filters: Mapping[str, Any] | None = None
) -> None:
    """Record the export in the audit log: number of reviews, format and filters."""
    active_filters = {name: value for name, value in (filters or {}).items() if value not in (None, "")}
    record(
        user=user, action="review.export", target=target, format=format, reviews=reviews.count(), filters=active_filters
    )


def tag_reviews(reviews: QuerySet[Review], *, format: str) -> tuple[str, QuerySet[Review]]:
    """Return an ETag, and the reviews of the file. Reviews that start later are excluded."""
    by_status = {status: Count("pk", filter=Q(status=status)) for status in Review.Status.values}
    times = {"submitted_at": Max("submitted_at"), "skipped_at": Max("skipped_at")}
    return tag_table(reviews, format=format, **times, people=Count("reviewer"), **by_status)


_ATTRIBUTES = {
    "id": "pk",
    "queue": "queue_id",
    "item": "item_id",
    "task": "task_id_shown",
    "reviewer": "reviewer_name",
    "repeat_of": "repeat_of_id",
    "rubric": "rubric_slug",
}
"""The attributes of columns whose names differ."""
_JOINED_COLUMNS = {
    "queue_kind": F("queue__kind"),
    "reviewer_name": F("reviewer__username"),
    "rubric_slug": F("rubric__slug"),
    "task_id_shown": Coalesce(F("item__task_id"), F("rollout__task_id")),
}


def _as_row(review: Any) -> dict[str, Any]:
    """Return the row of a review annotated with `_JOINED_COLUMNS`."""
    verdicts = list(review.verdicts.all()) if review.queue_kind == Queue.Kind.PAIRWISE else []
    verdict = verdicts[0] if verdicts else None
    winner = {"low": verdict.low_id, "high": verdict.high_id}.get(verdict.outcome) if verdict else None
    computed = {
        "kind": review.queue_kind or "score",
        "rollouts": review.arrangement or ([review.rollout_id] if review.rollout_id else []),
        "winner": winner,
        "strength": verdict.strength if verdict else None,
    }
    return {
        name: computed[name] if name in computed else getattr(review, _ATTRIBUTES.get(name, name)) for name in COLUMNS
    }
