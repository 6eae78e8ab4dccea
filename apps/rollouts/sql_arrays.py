"""Lists of ids as one parameter, so that a statement has the same text, and a kept plan, for every number of ids."""

import json
from collections.abc import Collection
from typing import Any

from django.db import connection


def in_ids(column: str, ids: Collection[int]) -> tuple[str, Any]:
    """Return a SQL condition that the column is one of the ids, and its parameter."""
    if connection.vendor == "postgresql":
        return f"{column} = ANY(%s::bigint[])", list(ids)
    return f"{column} IN (SELECT value FROM json_each(%s))", json.dumps(list(ids))  # noqa: S608
