"""CSV and TSV: the first record names the columns, and each further one becomes a JSON object of texts."""

import csv
import re
from collections.abc import Iterator

import orjson

from apps.gym.redaction.shortening import cut
from apps.gym.tasks.files.file_limits import KEPT_OF_LONG_ROW, BadRow, FileRefused, Readable, too_long
from apps.gym.tasks.files.lines import LineReader

# The module's default limit of 128 KB is too short for prompts. Lengths are limited below.
csv.field_size_limit(2**31 - 1)
MAX_COLUMNS = 2000
DELIMITERS = ",\t;|"


class _BadRecord(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Lines:
    """Lines for csv.reader, which reads more of them while a quote is open.

    Limited in size, and usable after an error.
    """

    def __init__(self, reader: LineReader, limit: int, *, content: "re.Pattern[bytes]") -> None:
        self._reader, self._lines, self._limit = reader, iter(reader), limit
        self.content = content
        """Matches what a record must contain. Lines without it are skipped before a record, but not within one."""
        self.began = 0
        self.size = 0
        self.head = b""

    def begin(self) -> None:
        self.began, self.size, self.head = 0, 0, b""

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        self._reader.content = None if self.began else self.content
        number, line = next(self._lines)
        self.began = self.began or number
        if isinstance(line, BadRow):
            self.head = self.head or line.head
            raise _BadRecord("too_long", line.message)
        self.size += len(line) + 1
        if not self.head:
            self.head = line[:KEPT_OF_LONG_ROW]
        if self.size > self._limit + 1:
            raise _BadRecord("too_long", too_long(self.size, self._limit, "record"))
        try:
            return line.decode() + "\n"
        except UnicodeDecodeError as error:
            message = f"byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8"
            raise _BadRecord("not_utf8", message) from None


class TableReader:
    """Rows as JSON, with the number of their first line. Empty cells are left out, because they have no value."""

    def __init__(self, stream: Readable, *, max_line_bytes: int, delimiter: str) -> None:
        reader = LineReader(stream, max_line_bytes=max_line_bytes)
        self._empty = rb"\r\n" + re.escape(delimiter.encode())
        self._lines = _Lines(reader, max_line_bytes, content=re.compile(rb"[^\s" + self._empty + rb"]"))
        self._records = csv.reader(self._lines, delimiter=delimiter, strict=True)
        self.columns: list[str] = []
        """The names in the header, available after the first row was read."""

    def __iter__(self) -> Iterator[tuple[int, bytes | BadRow]]:
        columns = self.columns = self._header()
        # Spaces are a value.
        self._lines.content = re.compile(rb"[^" + self._empty + rb"]")
        while columns:
            self._lines.begin()
            try:
                row = self._read_row(columns)
            except StopIteration:
                return
            except _BadRecord as bad:
                yield self._lines.began, BadRow(bad.code, str(bad), self._lines.head)
            except csv.Error as error:
                yield self._lines.began, BadRow("not_csv", f"not CSV: {error}", self._lines.head)
            else:
                if row:
                    yield self._lines.began, orjson.dumps(row)

    def _read_row(self, columns: list[str]) -> dict[str, str]:
        """Return the next record, or an empty object if it has no values."""
        cells = next(self._records)
        if any(cells) and len(cells) != len(columns):
            held = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            raise _BadRecord("wrong_columns", f"{held}, but the header names {len(columns)} columns")
        return {name: cell for name, cell in zip(columns, cells, strict=False) if cell}

    def _header(self) -> list[str]:
        names: list[str] = []
        while not any(names):
            self._lines.begin()
            try:
                names = [name.strip() for name in next(self._records)]
            except StopIteration:
                return []
            except _BadRecord as bad:
                is_long = bad.code == "too_long"
                told, limit = (str(bad), "GYMWEB_MAX_LINE_BYTES") if is_long else (f"the header: {bad}", "")
                raise FileRefused(bad.code, told, limit=limit) from None
            except csv.Error as error:
                raise FileRefused("bad_header", f"the header cannot be read: {error}") from None
        if len(names) > MAX_COLUMNS:
            message = f"{len(names):,} columns: the limit is {MAX_COLUMNS:,}"
            raise FileRefused("too_many_columns", message, limit="columns")
        for number, name in enumerate(names, 1):
            if not name:
                raise FileRefused("bad_header", f"column {number} has no name in the header")
            if names.index(name) != number - 1:
                raise FileRefused("bad_header", f"the column name {cut(name, 80)} is repeated")
        return names


def find_delimiter(start: bytes, filename: str) -> str:
    """Return the delimiter, from the file's name or else the most frequent candidate in the header."""
    if filename.lower().endswith((".tsv", ".tab")):
        return "\t"
    header = start.split(b"\n", 1)[0].decode(errors="replace")
    return max(DELIMITERS, key=header.count)
