"""Many ids as one parameter, so that a statement has the same text, and a kept plan, for every number of ids."""

import json
from collections.abc import Collection
from typing import Any

from django.db import connection

AMONG = "= ANY(ARRAY(SELECT unnest(%s::bigint[])))"
"""Equal to one of a parameter's ids. PostgreSQL plans `= ANY(%s)` anew for each length of the array."""


def in_ids(column: str, ids: Collection[int]) -> tuple[str, Any]:
    """Return a SQL condition that the column is one of the ids, and its parameter."""
    if connection.vendor == "postgresql":
        return f"{column} {AMONG}", list(ids)
    return f"{column} IN (SELECT value FROM json_each(%s))", json.dumps(list(ids))  # noqa: S608


def in_limited(column: str, select: str) -> str:
    """Return a SQL condition that the column is one of the rows of a SELECT with a limit.

    PostgreSQL may run the SELECT of an IN once for each row, and then finds more rows than the limit. It runs the
    SELECT of an array only once.
    """
    return f"{column} = ANY(ARRAY({select}))" if connection.vendor == "postgresql" else f"{column} IN ({select})"


def select_pairs(pairs: Collection[tuple[int, int]]) -> tuple[str, list[Any]]:
    """Return a SELECT of the pairs with two columns, and its parameters."""
    if connection.vendor == "postgresql":
        return "SELECT * FROM unnest(%s::bigint[], %s::bigint[])", [list(column) for column in zip(*pairs, strict=True)]
    return "SELECT value->>0, value->>1 FROM json_each(%s)", [json.dumps(list(pairs))]
