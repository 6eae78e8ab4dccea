"""The first rows of an export as they would be written, without writing any."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import orjson

from apps.exports.measuring import TokensFrom, count_tokens
from apps.exports.models import Export
from apps.exports.rows import RowReader

SOURCES = 2_000
"""Attempts, pairs or tasks that a preview looks at, at most: filters may leave few of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """`bytes` is the size of each row as JSON, `tokens` how many it has, and `tokens_from` how that is known, see
    measuring.py; counts are those of what was looked at until the rows were found."""

    rows: list[dict[str, Any]]
    bytes: list[int]
    tokens: list[int]
    tokens_from: list[TokensFrom]
    considered: int
    dropped: dict[str, int]


class _LookedEnough(Exception):
    pass


def preview_rows(export: Export, *, limit: int = 5) -> Preview:
    """Of an export that is prepared, stored or not."""
    reader = RowReader(export, on_step=lambda: _stop(reader))
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    tokens: list[tuple[int, TokensFrom]] = []
    dropped: Counter[str] = Counter()
    try:
        for _, found in reader.rows():
            size = _sizes(found)
            if size is None or reader.made_of is None:
                dropped["not_encodable"] += 1
                continue
            rows += found
            sizes += size
            tokens += count_tokens(found, size, reader.made_of)
            if len(rows) >= limit:
                break
    except _LookedEnough:
        pass
    dropped.update(reader.dropped)
    return Preview(
        rows=rows[:limit],
        bytes=sizes[:limit],
        tokens=[count for count, _ in tokens[:limit]],
        tokens_from=[known for _, known in tokens[:limit]],
        considered=reader.considered,
        dropped={reason: number for reason, number in sorted(dropped.items()) if number},
    )


def _stop(reader: RowReader) -> None:
    if reader.considered > SOURCES and not reader.written_from:
        raise _LookedEnough


def _sizes(rows: list[dict[str, Any]]) -> list[int] | None:
    """None where one cannot be written: then none of its attempt is."""
    try:
        return [len(orjson.dumps(row)) for row in rows]
    except orjson.JSONEncodeError:
        return None
