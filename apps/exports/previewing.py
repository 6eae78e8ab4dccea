"""The first rows of an export as they would be written, without writing any."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from apps.exports.models import Export
from apps.exports.rows import RowReader

SOURCES = 2_000
"""Attempts, pairs or tasks that a preview looks at, at most: filters may leave few of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """`bytes` is the size of each row as JSON; counts are those of what was looked at until the rows were found."""

    rows: list[dict[str, Any]]
    bytes: list[int]
    tokens: list[int | None]
    considered: int
    dropped: dict[str, int]


class _LookedEnough(Exception):
    pass


def preview_rows(export: Export, *, limit: int = 5) -> Preview:
    """Of an export that is prepared, stored or not. `tokens` are those of rows that hold token ids, else None."""
    reader = RowReader(export, on_step=lambda: _stop(reader))
    rows: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    try:
        for _, found in reader.rows():
            rows += [row for row in found if _is_encodable(row)]
            if len(rows) >= limit:
                break
    except _LookedEnough:
        pass
    dropped.update(reader.dropped)
    rows = list(islice(rows, limit))
    return Preview(
        rows=rows,
        bytes=[len(orjson.dumps(row)) for row in rows],
        tokens=[len(row["input_ids"]) if row.get("input_ids") else None for row in rows],
        considered=reader.considered,
        dropped={reason: number for reason, number in sorted(dropped.items()) if number},
    )


def _stop(reader: RowReader) -> None:
    if reader.considered > SOURCES and not reader.written_from:
        raise _LookedEnough


def _is_encodable(row: dict[str, Any]) -> bool:
    try:
        orjson.dumps(row)
    except orjson.JSONEncodeError:
        return False
    return True
