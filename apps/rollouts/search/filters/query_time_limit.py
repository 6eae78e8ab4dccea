"""End what a filter asks of the database when it takes too long, and say how to ask for less."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, transaction

from apps.gym.request_refusals import Refusal
from apps.rollouts.search.filters.filter_grammar import Filter, Pattern

_STEPS = 20_000
"""Of SQLite's machine between two looks at the clock: a fraction of a millisecond."""
_CANCELED = "57014"
_PLACES = ("collection", "dataset", "model", "agent", "environment", "task", "id")


class FilterTooSlow(Refusal, code="filter-too-slow"):
    """The filter asked for more than can be read in time; the message says what would be less."""

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [{"pointer": "?q", "code": "too-slow", "message": str(self)}]}


@contextmanager
def bound_time(parsed: Filter, *, seconds: float | None = None, always: bool = False) -> Iterator[None]:
    """Raise FilterTooSlow where the queries in this block take longer than `seconds`, else the setting FILTER_SECONDS:
    on PostgreSQL each of them, on SQLite all together. 0 is no limit; without terms there is none unless `always`.

    Only reads belong in it: on PostgreSQL it is a transaction, which ends with it.
    """
    limit = settings.FILTER_SECONDS if seconds is None else min(seconds, settings.FILTER_SECONDS or seconds)
    if not limit or not (parsed.terms or always):
        yield
        return
    bounded = _bound_postgres if connection.vendor == "postgresql" else _bound_sqlite
    try:
        with bounded(limit):
            yield
    except OperationalError as error:
        if not _was_ended(error):
            raise
        raise FilterTooSlow(_say(parsed, limit)) from None


@contextmanager
def _bound_postgres(limit: float) -> Iterator[None]:
    inner = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        before = "0"
        if inner:
            cursor.execute("SHOW statement_timeout")
            before = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, round(limit * 1000)))])
        yield
        if inner:
            # What is set for a transaction outlives a savepoint in it.
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


@contextmanager
def _bound_sqlite(limit: float) -> Iterator[None]:
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


def _say(parsed: Filter, limit: float) -> str:
    less = []
    if not parsed.asks_for(*_PLACES):
        less.append("name a collection or a dataset (collection:12, dataset:sums)")
    if not parsed.asks_for("id"):
        less.append("look among the newest alone (id:>1200)")
    if any(isinstance(value, Pattern) for term in parsed.terms if term.key == "text" for value in term.values):
        less.append("write more of the word before its star")
    elif parsed.asks_for("text"):
        less.append("look for rarer words, or more of them")
    if len(parsed.terms) > 1:
        less.append("leave out what few rollouts pass")
    *more, last = less or ["leave out a part of it"]
    advice = f"{', '.join(more)}, or {last}" if more else last
    return f"This filter was ended after {limit:g} seconds, since too many rollouts have to be read for it: {advice}."
