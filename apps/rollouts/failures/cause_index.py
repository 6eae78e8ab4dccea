"""Find the causes of unsolved rollouts, for the indexing job."""

from collections.abc import Collection as Some
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from django.db import connection
from django.db.models import F, Q

from apps.gym.traces.cause_texts import Source, normalise_cause
from apps.gym.traces.events import ToolResult
from apps.rollouts.last_verifications import read_last_verifications
from apps.rollouts.models import FailureCause, Rollout, RolloutCause
from apps.rollouts.sql_arrays import in_ids
from apps.rollouts.trace_payloads import unpack

UNSOLVED = Q(status=Rollout.Status.FAILED) | Q(reward__lt=F("collection__solve_threshold"))
"""Rollouts that failed, or whose reward does not solve their task."""
LAST_RESULTS = 8
"""Tool results that are searched for an error, from the last one on."""
MAX_BYTES = 16_384
"""Larger results, as stored, are not searched: errors are short."""

_RESULTS = """
    SELECT rollout_id, payload FROM (
        SELECT e.rollout_id, e.seq, e.payload,
            ROW_NUMBER() OVER (PARTITION BY e.rollout_id ORDER BY e.seq DESC) AS place
        FROM rollouts_traceevent e JOIN rollouts_rollout r ON r.id = e.rollout_id AND r.attempt = e.attempt
        WHERE e.kind = 'tool_result' AND LENGTH(e.payload) <= %s AND {rollouts}
    ) results WHERE place <= %s ORDER BY rollout_id, place
"""


class Reason(NamedTuple):
    """Why a rollout is unsolved, as stored. `values` are texts of this rollout that a group leaves out."""

    rollout: int
    collection: int
    source: Source
    text: str
    values: tuple[object, ...] = ()


class Cause(NamedTuple):
    """A reason in its normalised form."""

    rollout: int
    collection: int
    source: Source
    text: str


def find_causes(rollouts: Some[int]) -> list[Cause]:
    """Return the causes of the unsolved ones among these rollouts, with at most three queries."""
    found = (reason._replace(text=normalise_cause(reason.text, reason.values)) for reason in read_reasons(rollouts))
    return [Cause(*reason[:4]) for reason in found if reason.text]


def read_reasons(rollouts: Some[int]) -> Iterator[Reason]:
    """Yield the reasons of the unsolved ones among these rollouts, at most one for each source."""
    sql, given = _select_unsolved()
    condition, ids = in_ids("rollouts_rollout.id", rollouts)
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} AND {condition}", [*given, ids])
        rows = cursor.fetchall()
    verified = read_last_verifications(row[0] for row in rows) if rows else {}
    results = dict(_read_tool_errors([pk for pk, _, _, _, errors in rows if errors]))
    for pk, collection, kind, message, _ in rows:
        if verification := verified.get(pk):
            values = tuple(verification.details.values())
            yield Reason(pk, collection, "verifier", verification.explanation, values)
        if result := results.get(pk):
            yield Reason(pk, collection, "tool", f"{result.name}: {_message(result)}")
        if kind:
            yield Reason(pk, collection, "error", f"{kind}: {message}")


@cache
def _select_unsolved() -> tuple[str, tuple[Any, ...]]:
    """Return the query of all unsolved rollouts. Compiled once, because that takes longer than running it."""
    rows = Rollout.objects.filter(UNSOLVED).order_by()
    return rows.values_list("pk", "collection", "error_kind", "error_message", "tool_errors").query.sql_with_params()


def _message(result: ToolResult) -> str:
    """Return the message that the model read, or the kind of the error if there is none."""
    try:
        parsed = msgspec.json.decode(result.text)
    except msgspec.DecodeError:
        return result.text.strip() or result.error
    message = parsed.get("error") if isinstance(parsed, dict) else None
    return message if isinstance(message, str) and message else result.error


def _read_tool_errors(rollouts: list[int]) -> Iterator[tuple[int, ToolResult]]:
    """Yield the last result with an error of each rollout that has one."""
    if not rollouts:
        return
    condition, ids = in_ids("e.rollout_id", rollouts)
    with connection.cursor() as cursor:
        cursor.execute(_RESULTS.format(rollouts=condition), [MAX_BYTES, ids, LAST_RESULTS])
        rows: list[tuple[int, Any]] = cursor.fetchall()
    done = set()
    for pk, payload in rows:
        if pk not in done:
            result = msgspec.json.decode(unpack(payload), type=ToolResult)
            if result.error:
                done.add(pk)
                yield pk, result


def store_causes(rollouts: list[int], causes: list[Cause]) -> None:
    """Replace the causes of these rollouts, in the transaction of the caller."""
    condition, ids = in_ids("rollout_id", rollouts)
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM rollouts_rolloutcause WHERE {condition}", [ids])  # noqa: S608
    chosen = set(rollouts)
    causes = [cause for cause in causes if cause.rollout in chosen]
    if not causes:
        return
    # Sorted, so that two workers that insert the same causes do not block each other.
    keys = sorted({(cause.collection, cause.source, cause.text) for cause in causes})
    FailureCause.objects.bulk_create(
        [FailureCause(collection_id=collection, source=source, text=text) for collection, source, text in keys],
        ignore_conflicts=True,
    )
    stored = FailureCause.objects.filter(
        collection__in={collection for collection, _, _ in keys}, text__in={text for *_, text in keys}
    )
    known = {(row.collection_id, row.source, row.text): row.pk for row in stored}
    RolloutCause.objects.bulk_create(
        RolloutCause(
            rollout_id=cause.rollout, source=cause.source, cause_id=known[cause.collection, cause.source, cause.text]
        )
        for cause in causes
    )
