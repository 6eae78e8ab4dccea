"""Limit the time of filter queries, and suggest how to speed up a slow filter."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, transaction

from apps.gym.request_refusals import Refusal
from apps.rollouts.search.filters.filter_grammar import Filter, Pattern

_STEPS = 20_000
"""SQLite instructions between two time checks: a fraction of a millisecond."""
_CANCELED = "57014"
_PLACES = ("collection", "dataset", "model", "agent", "environment", "task", "id")


class FilterTooSlow(Refusal, code="filter-too-slow"):
    """Raised if a filter takes too long. The message suggests how to speed it up."""

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [{"pointer": "?q", "code": "too-slow", "message": str(self)}]}


@contextmanager
def limit_query_time(parsed: Filter, *, seconds: float | None = None, always: bool = False) -> Iterator[None]:
    """Raise FilterTooSlow if queries in this block take longer than `seconds`, by default FILTER_SECONDS.

    The limit applies to each query on PostgreSQL, and to their total on SQLite; 0 means no limit. Filters without terms
    are not limited unless `always` is True. Use it only for reads: on PostgreSQL the block is a transaction of its own.
    """
    limit = settings.FILTER_SECONDS if seconds is None else min(seconds, settings.FILTER_SECONDS or seconds)
    if not limit or not (parsed.terms or always):
        yield
        return
    bounded = _limit_postgres if connection.vendor == "postgresql" else _limit_sqlite
    try:
        with bounded(limit):
            yield
    except OperationalError as error:
        if not _was_ended(error):
            raise
        raise FilterTooSlow(_describe_timeout(parsed, limit)) from None


@contextmanager
def _limit_postgres(limit: float) -> Iterator[None]:
    inner = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        before = "0"
        if inner:
            cursor.execute("SHOW statement_timeout")
            before = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, round(limit * 1000)))])
        yield
        if inner:
            # Settings of a transaction outlive its savepoints.
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


@contextmanager
def _limit_sqlite(limit: float) -> Iterator[None]:
    connection.ensure_connection()
    driver = connection.connection
    end = time.monotonic() + limit
    driver.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _was_ended(error: OperationalError) -> bool:
    cause = error.__cause__
    return (
        getattr(cause, "sqlstate", None) == _CANCELED or getattr(cause, "sqlite_errorname", None) == "SQLITE_INTERRUPT"
    )


def _describe_timeout(parsed: Filter, limit: float) -> str:
    less = []
    if not parsed.asks_for(*_PLACES):
        less.append("add a collection or a dataset (collection:12, dataset:sums)")
    if not parsed.asks_for("id"):
        less.append("search only the newest rollouts (id:>1200)")
    if any(isinstance(value, Pattern) for term in parsed.terms if term.key == "text" for value in term.values):
        less.append("write more letters before the star")
    elif parsed.asks_for("text"):
        less.append("search for rarer words, or more of them")
    if len(parsed.terms) > 1:
        less.append("remove terms that match few rollouts")
    *more, last = less or ["remove a term"]
    advice = f"{', '.join(more)}, or {last}" if more else last
    return f"This filter was stopped after {limit:g} seconds because it reads too many rollouts: {advice}."
