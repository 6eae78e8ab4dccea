"""The first rows of an export as they would be written, without writing any."""

import time
from dataclasses import dataclass
from typing import Any

from apps.exports.export_rows import RowReader
from apps.exports.models import Export
from apps.exports.token_lengths import TokensFrom, count_tokens

SECONDS = 2.0
"""How long somebody waits for a preview: it goes on counting when its rows are found, and filters may leave few of
many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an export would write.

    `bytes` is the size of each row as JSON, `tokens` its number of tokens, and `tokens_from` how they were counted (see
    token_lengths.py). `considered` = `written_from` + the sum of `dropped`; `written` is the number of rows made from
    them. If `stopped_after` is set, counting ended after so many seconds, and there may be more.
    """

    rows: list[dict[str, Any]]
    bytes: list[int]
    tokens: list[int]
    tokens_from: list[TokensFrom]
    considered: int
    written_from: int
    written: int
    dropped: dict[str, int]
    stopped_after: float | None = None


class _LookedEnough(Exception):
    pass


def preview_rows(export: Export, *, limit: int = 5) -> Preview:
    """Of an export that is prepared, stored or not."""
    until = time.monotonic() + SECONDS
    reader = RowReader(export, on_step=lambda: _stop(until))
    stopped_after = None
    written = 0
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    tokens: list[tuple[int, TokensFrom]] = []
    try:
        for made in reader.rows():
            written += len(made.rows)
            if len(rows) < limit:
                size = [len(row) for row in made.encoded]
                rows += made.rows
                sizes += size
                tokens += count_tokens(made.rows, size, made.source)
    except _LookedEnough:
        stopped_after = SECONDS
    return Preview(
        rows=rows[:limit],
        bytes=sizes[:limit],
        tokens=[count for count, _ in tokens[:limit]],
        tokens_from=[known for _, known in tokens[:limit]],
        # Whole groups are read: what comes of the rest of one is not known where it stopped amid it.
        considered=reader.written_from + reader.dropped.total(),
        written_from=reader.written_from,
        written=written,
        dropped={reason: number for reason, number in sorted(reader.dropped.items()) if number},
        stopped_after=stopped_after,
    )


def _stop(until: float) -> None:
    if time.monotonic() > until:
        raise _LookedEnough
