"""Preview of an export: its first rows, without writing files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apps.exports.export_rows import RowReader
from apps.exports.models import Export
from apps.gym.exporters.protocol import Attempt, Preference, TaskPrompt
from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import main_line
from apps.gym.wires.protocol import tells_all

Source = Attempt | Preference | TaskPrompt

TokensFrom = Literal["ids", "usage", "size"]
"""How tokens were counted: `ids` counts the row's captured token ids.

`usage` is the policy model's count including tools and template: for a whole attempt its last call, for a pair the
longer side. `size` is an estimate from the number of bytes.
"""

BYTES_A_TOKEN = 4


def count_tokens(rows: Sequence[dict[str, Any]], sizes: Sequence[int], source: Source) -> list[tuple[int, TokensFrom]]:
    """Return the token length of each row of the source; `sizes` are the JSON sizes in bytes."""
    told = _told(source, len(rows))
    counts: list[tuple[int, TokensFrom]] = []
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        own, usage = row.get("input_ids"), told[number]
        if isinstance(own, list) and own:
            counts.append((len(own), "ids"))
        elif usage is not None:
            counts.append((usage, "usage"))
        else:
            counts.append((-(-size // BYTES_A_TOKEN), "size"))
    return counts


def _told(source: Source, rows: int) -> list[int | None]:
    if isinstance(source, TaskPrompt):
        return [None] * rows
    if isinstance(source, Preference):
        sides = [_calls(side)[-1:] for side in (source.chosen, source.rejected)]
        counts = [count for side in sides for count in side if count is not None]
        return [max(counts) if len(counts) == len(sides) else None] * rows
    calls = _calls(source)
    # One row per turn, or rows of the whole attempt.
    return calls if len(calls) == rows else [*calls[-1:], None][:1] * rows


def _calls(attempt: Attempt) -> list[int | None]:
    spoken = (event.usage for event in main_line(attempt.events) if isinstance(event, ModelCall) and event.items)
    return [usage["input_tokens"] + usage["output_tokens"] if tells_all(usage) else None for usage in spoken]


SECONDS = 2.0
"""Time limit of a preview in seconds.

Counting continues until then even if enough rows were found, so that the total is known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an export would write.

    `bytes` is the size of each row as JSON, `tokens` its number of tokens, and `tokens_from` how they were counted (see
    `count_tokens`). `considered` = `written_from` + the sum of `dropped`; `written` is the number of rows. If
    `stopped_after` is set, counting stopped after that many seconds and there may be more.
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
    """Return the preview of a prepared or stored export."""
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
        # Whole groups are read, because the outcome of a partial group is unknown.
        considered=reader.written_from + reader.dropped.total(),
        written_from=reader.written_from,
        written=written,
        dropped={reason: number for reason, number in sorted(reader.dropped.items()) if number},
        stopped_after=stopped_after,
    )


def _stop(until: float) -> None:
    if time.monotonic() > until:
        raise _LookedEnough
