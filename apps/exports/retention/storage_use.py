"""Measure disk use by table and by collection, for a few seconds at most."""

from typing import Any, NamedTuple

from django.db import OperationalError, connection

from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.filter_grammar import Filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time
from apps.rollouts.trace_sizes import measure_traces

MAX_SECONDS = 5.0
"""Time limit for measuring the tables. Measuring the collections has the same limit again."""
MOST_COLLECTIONS = 20
_TABLES = {
    "sqlite": "SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name"
    " WHERE s.aggregate = TRUE GROUP BY 1 ORDER BY 2 DESC, 1",
    "postgresql": "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables ORDER BY 2 DESC, 1",
}
_FREE = {
    "sqlite": "SELECT freelist_count * page_size FROM pragma_freelist_count(), pragma_page_size()",
    "postgresql": "SELECT 0",
}


class TableUse(NamedTuple):
    """The bytes of a table with its indexes."""

    name: str
    bytes: int


class CollectionUse(NamedTuple):
    """The bytes of the traces of a collection, and of their words in the search index."""

    id: int
    label: str
    rollouts: int
    events: int
    bytes: int


class StorageUse(NamedTuple):
    """`free` are the bytes of the SQLite file that no row uses.

    `tables` is empty if measuring takes too long or SQLite cannot do it. `collections` are those with most rollouts;
    the list ends where measuring takes too long.
    """

    free: int
    tables: list[TableUse]
    collections: list[CollectionUse]


def read_storage() -> StorageUse:
    """Return the disk use, largest first."""
    [(free,)] = _run(_FREE[connection.vendor])
    collections = sorted(_read_collections(), key=lambda each: -each.bytes)
    return StorageUse(free, _read_tables(), collections)


def _read_tables() -> list[TableUse]:
    try:
        with limit_query_time(Filter(), seconds=MAX_SECONDS, always=True):
            return [TableUse(*row) for row in _run(_TABLES[connection.vendor])]
    except (FilterTooSlow, OperationalError):  # Some builds of SQLite lack `dbstat`.
        return []


def _read_collections() -> list[CollectionUse]:
    found: list[CollectionUse] = []
    rows = Collection.objects.present().only("pk", "name", "total").order_by("-total", "pk")
    try:
        with limit_query_time(Filter(), seconds=MAX_SECONDS, always=True):
            for each in rows[:MOST_COLLECTIONS]:
                size = measure_traces(Rollout.objects.filter(collection=each).order_by().values("pk"))
                found.append(CollectionUse(each.pk, each.label, each.total, size.events, size.bytes))
    except FilterTooSlow:
        pass
    return found


def _run(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
