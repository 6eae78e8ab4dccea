"""Print results on standard output, as tables or JSON, and messages and progress bars on standard error."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

ROWS_OF_A_TABLE = 50
WIDTH_OF_A_PIPE = 10_000
MOST_COLUMNS = 10
# Control characters in model replies must not reach the terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Some readers split lines of JSON at them.
_LINE_ENDS = {0x85: r"\u0085", 0x2028: r"\u2028", 0x2029: r"\u2029"}

Advance = Callable[[int, int, str], None]
"""Updates a progress bar: done, total, and a text after the bar."""


class Output:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() else WIDTH_OF_A_PIPE
        self._out = Console(highlight=False, markup=False, emoji=False, width=width)
        self._err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a message on standard error."""
        self._err.print(Text(clean(text)))

    def text(self, text: str) -> None:
        self._out.print(Text(clean(text)), soft_wrap=True)

    def rows(self, rows: Iterable[dict[str, Any]], columns: list[str], limit: int | None = None) -> None:
        """Print a table, or one JSON object per line. Without a limit, a table ends after 50 rows with a notice."""
        if self.as_json:
            for row in islice(rows, limit):
                self._json(row)
            return
        most = limit or ROWS_OF_A_TABLE
        found = list(islice(rows, most + 1))
        if not found:
            self.say("No results.")
            return
        columns = columns or list(found[0])[:MOST_COLUMNS]
        table = Table(*columns, box=None, header_style="bold")
        for row in found[:most]:
            table.add_row(*(Text(_cell(row.get(name))) for name in columns))
        self._out.print(table)
        if len(found) > most and not limit:
            self.say(f"First {most} rows. Use --limit N for more, --json for all.")

    def one(self, row: Any, *, empty: str = "") -> None:
        """Print one object, as a list of fields or as JSON."""
        if self.as_json:
            self._json(row)
        elif not row:
            self.say(empty)
        else:
            width = max(map(len, row))
            self.text("\n".join(f"{name:<{width}}  {_cell(value)}" for name, value in row.items()))

    def _json(self, value: Any) -> None:
        sys.stdout.write(json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS) + "\n")

    @contextmanager
    def progress(self, what: str) -> Iterator[Advance]:
        """Show a progress bar if standard error is a terminal."""
        with self._bar(MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(what, total=None, note="")
            yield lambda done, total, note: bar.update(task, completed=done, total=total or None, note=note)

    @contextmanager
    def reading(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a file with a progress bar."""
        with (
            self._bar(DownloadColumn(), TransferSpeedColumn()) as bar,
            bar.open(path, "rb", description=f"Uploading {path.name}") as file,
        ):
            yield file

    def _bar(self, *columns: ProgressColumn) -> Progress:
        parts = (TextColumn("{task.description}"), BarColumn(), *columns)
        return Progress(*parts, console=self._err, transient=True, disable=not self._err.is_terminal)


def clean(text: str) -> str:
    return _CONTROLS.sub("�", text)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean(" ".join(text.split()))
