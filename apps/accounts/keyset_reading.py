"""Read any number of rows in pages, without an open cursor.

An open cursor holds a read snapshot, and SQLite then refuses writes on its connection once another connection has
committed (SQLITE_BUSY_SNAPSHOT), whatever the busy timeout. This project therefore does not use `.iterator()`.
"""

from collections.abc import AsyncIterator, Iterator
from operator import attrgetter
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from apps.accounts.outages import run_query

Row = TypeVar("Row")

PAGE = 1_000


def read_by_key(rows: "QuerySet[Any, Row]", *, by: str = "pk", size: int = PAGE) -> Iterator[Row]:
    """Yield the rows in ascending order of `by`, a unique column. Each query reads `size` rows.

    Rows of `values_list` must begin with this column, and the queryset must not be sliced. The caller may write on the
    same connection between rows. Rows added behind the current page are read too.
    """
    ordered = rows.order_by(by)
    page = list(ordered[:size])
    while page:
        yield from page
        if len(page) < size:
            return
        last: Any = page[-1]
        key = attrgetter(by)(last) if isinstance(last, Model) else last[0]
        page = list(ordered.filter(**{f"{by}__gt": key})[:size])


async def one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, producing each on the thread of the request. No connection is held while a piece is sent."""

    def make() -> bytes:
        return next(pieces, b"")

    while piece := await run_query(make):
        yield piece
