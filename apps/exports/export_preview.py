"""Preview an export without writing files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from apps.exports.export_orders import ExportOrder, ExportRefused, template_settings
from apps.exports.export_rows import RowReader
from apps.exports.exported_credentials import warn_of_credentials
from apps.exports.models import Export
from apps.gym.chat_templates.template_findings import TemplateReport
from apps.gym.exporters.protocol import Attempt, Preference, TaskPrompt
from apps.gym.exporters.registry import find_format
from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import main_line
from apps.gym.training_ledger import Trainability
from apps.gym.wires.protocol import has_all_counts

Source = Attempt | Preference | TaskPrompt

TokenSource = Literal["ids", "usage", "size"]
"""How tokens were counted.

`ids`: the captured token IDs of the row. `usage`: as reported by the policy model, including tools and template; for a
whole attempt its last call, for a pair the longer side. `size`: estimated from bytes.
"""

BYTES_A_TOKEN = 4


def count_tokens(rows: Sequence[dict[str, Any]], sizes: Sequence[int], source: Source) -> list[tuple[int, TokenSource]]:
    """Return the token length of each row of the source; `sizes` are the JSON sizes in bytes."""
    counted = _count_calls(source, len(rows))
    counts: list[tuple[int, TokenSource]] = []
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        own, usage = row.get("input_ids"), counted[number]
        if isinstance(own, list) and own:
            counts.append((len(own), "ids"))
        elif usage is not None:
            counts.append((usage, "usage"))
        else:
            counts.append((-(-size // BYTES_A_TOKEN), "size"))
    return counts


def _count_calls(source: Source, rows: int) -> list[int | None]:
    if isinstance(source, TaskPrompt):
        return [None] * rows
    if isinstance(source, Preference):
        sides = [_calls(side)[-1:] for side in (source.chosen, source.rejected)]
        counts = [count for side in sides for count in side if count is not None]
        return [max(counts) if len(counts) == len(sides) else None] * rows
    calls = _calls(source)
    # Either one row per turn, or rows of the whole attempt.
    return calls if len(calls) == rows else [*calls[-1:], None][:1] * rows


def _calls(attempt: Attempt) -> list[int | None]:
    spoken = (event.usage for event in main_line(attempt.events) if isinstance(event, ModelCall) and event.items)
    return [usage["input_tokens"] + usage["output_tokens"] if has_all_counts(usage) else None for usage in spoken]


SECONDS = 2.0
"""Time limit of a preview, in seconds.

Counting continues until then even if enough rows were found, to determine the total.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The first rows of an export, and its counts.

    `bytes` is the JSON size of each row, `tokens` its number of tokens, and `tokens_from` how they were counted (see
    TokenSource). `considered` equals `written_from` plus the sum of `dropped`; `written` is the number of rows.
    `credentials` is a warning about suspected credentials, or empty. If `stopped_after` is set, counting stopped after
    that many seconds.
    """

    rows: list[dict[str, Any]]
    bytes: list[int]
    tokens: list[int]
    tokens_from: list[TokenSource]
    considered: int
    written_from: int
    written: int
    dropped: dict[str, int]
    trainability: Trainability
    credentials: str = ""
    not_checked: str = ""
    template_check: TemplateReport | None = None
    stopped_after: float | None = None


class _TimeLimitReached(Exception):
    pass


def preview_rows(export: Export, *, limit: int = 5, seconds: float | None = None) -> Preview:
    """Return the preview of a prepared or stored export, after SECONDS or the given time."""
    seconds = SECONDS if seconds is None else seconds
    until = time.monotonic() + seconds
    reader = RowReader(export, on_step=lambda: _check_time(until))
    stopped_after = None
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    tokens: list[tuple[int, TokenSource]] = []
    try:
        for source_rows in reader.rows():
            if len(rows) < limit:
                size = [len(row) for row in source_rows.encoded]
                rows += source_rows.rows
                sizes += size
                tokens += count_tokens(source_rows.rows, size, source_rows.source)
    except _TimeLimitReached:
        stopped_after = seconds
    ledger = reader.ledger
    report = reader.check.report() if reader.check else None
    if report and stopped_after:
        said = f"Stopped after {seconds:g} seconds. An export with this template checks all rows."
        report = replace(report, stopped=report.stopped or said)
    return Preview(
        rows=rows[:limit],
        bytes=sizes[:limit],
        tokens=[count for count, _ in tokens[:limit]],
        tokens_from=[known for _, known in tokens[:limit]],
        # Only complete groups count: the outcome of a partial group is unknown.
        considered=ledger.used + ledger.dropped.total(),
        written_from=ledger.used,
        written=ledger.rows,
        dropped=ledger.counts(),
        trainability=reader.summarize(),
        credentials=warn_of_credentials(reader.credentials.figures()),
        not_checked=export.not_checked,
        template_check=report,
        stopped_after=stopped_after,
    )


def _check_time(until: float) -> None:
    if time.monotonic() > until:
        raise _TimeLimitReached


def check_template(
    export: Export, *, tokenizer: str = "", template: str = "", every_row: bool = False, seconds: float = 20.0
) -> TemplateReport:
    """Return what a template does to the rows of a stored export, of which nothing is changed. Raise ExportRefused."""
    if not tokenizer and not template:
        raise ExportRefused("Give a tokenizer or a template to check.", "tokenizer")
    order = ExportOrder(
        format=export.format,
        collection=export.collection,
        tokenizer=tokenizer,
        template=template,
        every_row=every_row,
    )
    export.template = template_settings(find_format(export.format), order)
    report = preview_rows(export, limit=0, seconds=seconds).template_check
    assert report is not None
    return report
