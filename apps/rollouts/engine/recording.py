"""Store events and ends of rollouts in batches. Ends are fenced by (lease, attempt)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from django.db import connection, transaction

from apps.rollouts.engine.collection_limits import lock_collections, pause_noticed, settle_collections
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.row_statements import execute_with_rows
from apps.rollouts.search.word_index import mark_attempts_unindexed
from apps.rollouts.sql_arrays import AMONG
from apps.rollouts.trace_images import EventRow, store_event_images
from apps.rollouts.trace_payloads import pack
from apps.tasks.stored_images import Images

StoredRow = tuple[int, int, int, str, bytes, bytes | None]
"""EventRow with the payload in its stored form."""


class End(msgspec.Struct, kw_only=True, frozen=True):
    """The end of an attempt. `reward` is set only if `status` is `completed`, `error_kind` only if it is `failed`.

    Status `queued` retries the rollout. `failed` is 1 if the attempt counts towards the maximum number of attempts.
    `deferred` attempts are not counted as retried either, because the endpoint accepts no calls for now. Durations are
    in seconds, `cost` is in USD.
    """

    id: int
    lease: int
    collection: int
    attempt: int
    status: str
    reward: float | None = None
    components: dict[str, float] = {}
    masked: str = ""
    ambiguous_path: bool = False
    notices: str = ""
    stop_reason: str = ""
    error_kind: str = ""
    error_message: str = ""
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    judge_calls: int = 0
    judge_tokens: int = 0
    calls_without_usage: int = 0
    retried_calls: int = 0
    sampled_tokens: int = 0
    trainable_tokens: int = 0
    cost: float = 0.0
    model_version: str = ""
    failed: int = 0
    deferred: bool = False
    duration: float = 0.0
    model_time: float = 0.0
    tool_time: float = 0.0
    verify_time: float = 0.0
    tools: dict[str, tuple[int, int, float]] = {}
    answer: str = ""
    redactions: dict[str, int] = {}
    flagged: bool = False


def unstorable_end(end: End, problem: Exception) -> End:
    """Return a failed end to store in place of an end that the database rejects."""
    return End(
        id=end.id,
        lease=end.lease,
        collection=end.collection,
        attempt=end.attempt,
        status="failed",
        error_kind="environment_error",
        error_message=f"The result could not be stored ({type(problem).__name__}). See the worker log.",
    )


_COLUMNS = {
    "status": "text",
    "reward": "double precision",
    "components": "jsonb",
    "masked": "text",
    "ambiguous_path": "boolean",
    "notices": "text",
    "stop_reason": "text",
    "error_kind": "text",
    "error_message": "text",
    "turns": "int",
    "tool_calls": "int",
    "tool_errors": "int",
    "input_tokens": "int",
    "output_tokens": "int",
    "judge_calls": "int",
    "judge_tokens": "int",
    "calls_without_usage": "int",
    "retried_calls": "int",
    "sampled_tokens": "int",
    "trainable_tokens": "int",
    "cost": "double precision",
    "model_version": "text",
    "duration": "double precision",
    "model_time": "double precision",
    "tool_time": "double precision",
    "verify_time": "double precision",
    "tools": "jsonb",
    "answer": "text",
    "redactions": "jsonb",
    "flagged": "boolean",
}
"""Rollout columns set by an end, from its fields of the same names, with their PostgreSQL types."""
_KEY_COLUMNS = {"id": "bigint", "lease": "bigint", "attempt": "int", "failed": "int"}
_END = """
    UPDATE rollouts_rollout SET {columns}, failures = rollouts_rollout.failures + v.failed,
        finished_at = CASE WHEN v.status = 'queued' THEN NULL ELSE {now} END, lease = NULL
    FROM {source}
    WHERE {among}rollouts_rollout.id = v.id AND rollouts_rollout.lease = v.lease
        AND rollouts_rollout.attempt = v.attempt AND rollouts_rollout.status = 'running'
    RETURNING rollouts_rollout.id, rollouts_rollout.attempt, rollouts_rollout.task_id
"""
_SET = ", ".join(f"{name} = v.{name}" for name in _COLUMNS)
_JSON_FIELDS = [name for name, kind in _COLUMNS.items() if kind == "jsonb"]
_FIELDS = [*(name for name in (*_KEY_COLUMNS, *_COLUMNS) if name not in _JSON_FIELDS), *_JSON_FIELDS]
_values_of = attrgetter(*_FIELDS)
_TYPED = ", ".join(f"{name} {kind}" for name, kind in {**_KEY_COLUMNS, **_COLUMNS}.items())
# Only these constant names are formatted into the SQL, never values. SQLite reads bound values much faster than fields
# of JSON.
_SQLITE_END = f"WITH v({', '.join(_FIELDS)}) AS (VALUES {{rows}}) " + _END.format(
    columns=_SET, now="%s", source="v", among=""
)
# Without the ids, PostgreSQL reads all rollouts that run or have ended since the last vacuum.
_AMONG_IDS = f"rollouts_rollout.id {AMONG} AND "
_POSTGRES_END = _END.format(
    columns=_SET,
    now="%s::timestamptz",
    source=f"jsonb_to_recordset(%s::jsonb) AS v({_TYPED})",
    among=_AMONG_IDS,
)
PAUSE_AFTER = 20
"""Ended rollouts after which a collection may pause because of a notice."""
_COUNTERS: dict[str, float] = {
    **dict.fromkeys(["completed", "failed", "cancelled", "retried", "rewarded", "calls_without_usage"], 0),
    **dict.fromkeys(["retried_calls", "input_tokens", "output_tokens", "judge_tokens"], 0),
    **dict.fromkeys(["cost", "reward_sum"], 0.0),
}
# Written by hand, because compiling the ORM's statement takes longer than running it. It returns True if the collection
# is complete or has reached a limit, and True if it pauses on notices and its 20th rollout is among these ends. No
# `IS NOT NULL`: in RETURNING, SQLite takes it as always true.
_COUNT = f"""
    UPDATE rollouts_collection SET {", ".join(f"{name} = {name} + %s" for name in _COUNTERS)} WHERE id = %s
    RETURNING total <= completed + failed + cancelled OR max_cost <= cost
        OR max_tokens <= input_tokens + output_tokens + judge_tokens,
        pause_on_notice AND completed + failed + cancelled >= {PAUSE_AFTER}
        AND completed + failed + cancelled - %s < {PAUSE_AFTER}
"""  # noqa: S608
_EVENT_TYPES = ["int8", "int2", "int4", "varchar", "bytea", "bytea"]
_EVENT_COLUMNS = "rollout_id, attempt, seq, kind, payload, tokens"
_INSERT = f"INSERT INTO rollouts_traceevent ({_EVENT_COLUMNS}) VALUES {{rows}}"  # noqa: S608
_INSERT_AGAIN = f"{_INSERT} ON CONFLICT DO NOTHING"
_BYTES_PER_STATEMENT = 8 * 1024 * 1024


def record_batch(
    *,
    events: Sequence[EventRow],
    ends: Sequence[End],
    now: datetime,
    may_be_stored: bool = False,
    images: Mapping[int, Images] | None = None,
) -> set[int]:
    """Store events and ends in one transaction. Return the ids of changed collections.

    An end is ignored, counters included, if the rollout has another lease or attempt by now. Events need
    no such check, because each claim has a new attempt number. Set `may_be_stored` on a retry: events that are already
    stored are skipped. `images` maps a rollout id to the images of its events.
    """
    with transaction.atomic():
        store_event_images(images or {})
        _insert_events(events, may_be_stored)
        tasks = _write_ends(ends, now) if ends else {}
        ended = [end for end in ends if (end.id, end.attempt) in tasks]
        mark_attempts_unindexed([(end.id, end.attempt) for end in ended if end.status != "queued"])
        mark_changed((end.collection, tasks[end.id, end.attempt]) for end in ended)
        return _count_ends(ended) if ended else set()


def _insert_events(events: Sequence[EventRow], may_be_stored: bool) -> None:
    if not events:
        return
    payloads = pack([event[4] for event in events])
    stored = [
        (rollout_id, attempt, seq, kind, payload, tokens)
        for (rollout_id, attempt, seq, kind, _, tokens), payload in zip(events, payloads, strict=True)
    ]
    if connection.vendor == "postgresql" and not may_be_stored:
        # Binary format: in text format, tokens would be hexadecimal and twice as long.
        copy = f"COPY rollouts_traceevent ({_EVENT_COLUMNS}) FROM STDIN (FORMAT BINARY)"
        # Django does not wrap driver errors of COPY, but only Django errors are retried.
        with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(copy) as stream:
            stream.set_types(_EVENT_TYPES)
            for row in stored:
                stream.write_row(row)
        return
    # Multi-row statements: for each row of `executemany`, SQLite's driver releases the GIL and waits up to 5 ms to get
    # it back.
    insert = _INSERT_AGAIN if may_be_stored else _INSERT
    for rows in _groups(stored):
        execute_with_rows(insert, rows)


def _groups(events: Sequence[StoredRow]) -> Iterator[Sequence[StoredRow]]:
    """Yield groups of limited size, because SQLite copies all values of a statement before running it."""
    if len(events) == 1 or sum(map(len, map(itemgetter(4), events))) <= _BYTES_PER_STATEMENT:
        yield events
    else:
        middle = len(events) // 2
        yield from _groups(events[:middle])
        yield from _groups(events[middle:])


def _write_ends(ends: Sequence[End], now: datetime) -> dict[tuple[int, int], int]:
    """Store the ends. Return the task id of each accepted end, by (rollout id, attempt)."""
    ended_at = connection.ops.adapt_datetimefield_value(now)
    if connection.vendor == "sqlite":
        accepted = execute_with_rows(_SQLITE_END, [_values(end) for end in ends], ended_at)
    else:
        with connection.cursor() as cursor:
            cursor.execute(_POSTGRES_END, [ended_at, msgspec.json.encode(ends).decode(), [end.id for end in ends]])
            accepted = cursor.fetchall()
    return {(rollout_id, attempt): task_id for rollout_id, attempt, task_id in accepted}


def _values(end: End) -> list[Any]:
    values = _values_of(end)
    given = len(values) - len(_JSON_FIELDS)
    return [*values[:given], *(msgspec.json.encode(value).decode() for value in values[given:])]


def _count_ends(ended: Sequence[End]) -> set[int]:
    """Add the ends to the counters of their collections, then complete or pause the collections if necessary."""
    totals: dict[int, dict[str, float]] = {}
    for end in ended:
        total = totals.setdefault(end.collection, {**_COUNTERS})
        # The counters have the names of the statuses.
        if not end.deferred:
            total["retried" if end.status == "queued" else end.status] += 1
        total["input_tokens"] += end.input_tokens
        total["output_tokens"] += end.output_tokens
        total["judge_tokens"] += end.judge_tokens
        total["calls_without_usage"] += end.calls_without_usage
        total["retried_calls"] += end.retried_calls
        total["cost"] += end.cost
        if end.reward is not None:
            total["rewarded"] += 1
            total["reward_sum"] += end.reward
    lock_collections(totals)
    unsettled: list[int] = []
    begun: list[int] = []
    with connection.cursor() as cursor:
        for collection_id, total in totals.items():
            counted = total["completed"] + total["failed"] + total["cancelled"]
            cursor.execute(_COUNT, [*total.values(), collection_id, counted])
            for is_settled, has_begun in cursor.fetchall():
                unsettled += [collection_id] * bool(is_settled)
                begun += [collection_id] * bool(has_begun)
    if unsettled:
        settle_collections(unsettled)
    if begun:
        pause_noticed(begun)
    return set(totals)
