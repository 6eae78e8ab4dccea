"""Read rows from a file of any format. The format is detected from its content, or else from its name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from apps.gym.tasks.files.arrays import ArrayReader
from apps.gym.tasks.files.file_limits import BadRow, FileRefused, Limits, Readable
from apps.gym.tasks.files.lines import BOM, LineReader
from apps.gym.tasks.files.parquet import MAGIC, ParquetReader
from apps.gym.tasks.files.streams import Counted, unpack
from apps.gym.tasks.files.tabular_files import TableReader, find_delimiter
from apps.gym.tasks.files.zip_archives import ZIP, ZipReader

FORMATS = {
    "jsonl": "JSONL",
    "array": "JSON array",
    "csv": "CSV",
    "tsv": "TSV",
    "parquet": "Parquet",
    "zip": "ZIP with one of these and images",
}
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}
_OTHER_FILES = {ZIP: "a compressed ZIP archive", b"BZh": "a bzip2 file", b"\xfd7zXZ": "an xz file", b"%PDF": "a PDF"}


@dataclass
class OpenFile:
    """An open file.

    `rows` yields JSON bytes or a BadRow, each with the number of its first line (row, record), from 1.
    """

    format: str
    packing: str
    rows: Iterator[tuple[int, bytes | BadRow]]
    _source: Counted
    _reader: Iterable[tuple[int, bytes | BadRow]]

    @property
    def header(self) -> list[str]:
        """Return the columns of a table, available after its first row was read. Rows leave out empty cells."""
        return self._reader.columns if isinstance(self._reader, TableReader | ZipReader) else []

    @property
    def ends_with_newline(self) -> bool:
        """Return False if the last line of a JSONL file has no line feed. Known after the last row."""
        return not isinstance(self._reader, LineReader) or self._reader.ends_with_newline

    @property
    def bytes_read(self) -> int:
        """Position in the uploaded file, in bytes."""
        return self._source.count


def open_rows(stream: Readable, *, filename: str, limits: Limits) -> OpenFile:
    """Detect the format and open the file. Raises FileRefused, also later while the rows are read."""
    source = Counted(stream, limits.on_read)
    content, packing = unpack(source, limits)
    start = content.peek()
    name = filename.lower().removesuffix(".gz").removesuffix(".zst")
    if start.startswith(ZIP) and not packing:
        archive = ZipReader(content, limits, partial(_open_rows, limits=limits, packed=True))
        return OpenFile(format="zip", packing="", rows=_bounded(iter(archive), limits), _source=source, _reader=archive)
    format, reader = _open_rows(content, name, limits=limits, packed=bool(packing))
    rows = _bounded(iter(reader), limits)
    return OpenFile(format=format, packing=packing, rows=rows, _source=source, _reader=reader)


def _open_rows(
    content: Counted, name: str, *, limits: Limits, packed: bool
) -> tuple[str, Iterable[tuple[int, bytes | BadRow]]]:
    """Return the format and the rows of uncompressed content."""
    format = _find_format(content.peek(), name)
    return format, _reader(format, content, name=name, limits=limits, packed=packed)


def _find_format(start: bytes, name: str) -> str:
    if start.startswith(MAGIC):
        return "parquet"
    for mark, encoding in _OTHER_ENCODINGS.items():
        if start.startswith(mark):
            raise FileRefused("not_utf8", f"the file is {encoding}: save it as UTF-8")
    for mark, what in _OTHER_FILES.items():
        if start.startswith(mark):
            raise FileRefused("unknown_format", f"this is {what}: upload {', '.join(FORMATS.values())}, or .gz or .zst")
    if b"\x00" in start[:4096]:
        raise FileRefused("not_text", "the file contains NUL bytes: it is not UTF-8 text")
    if name.endswith((".csv", ".tsv", ".tab")):
        return "csv" if name.endswith(".csv") else "tsv"
    text = start.removeprefix(BOM).lstrip()
    if text.startswith(b"["):
        # In JSONL, a line with a list is reported as an invalid row. A JSON array contains rows.
        return "jsonl" if name.endswith((".jsonl", ".ndjson")) and _is_jsonl(text) else "array"
    return "jsonl"


def _is_jsonl(text: bytes) -> bool:
    """Return True if the first line is a complete list and another line follows."""
    line, _, rest = text.partition(b"\n")
    return line.rstrip().endswith(b"]") and bool(rest.strip())


def _reader(
    format: str, content: Counted, *, name: str, limits: Limits, packed: bool
) -> Iterable[tuple[int, bytes | BadRow]]:
    if format == "parquet":
        return ParquetReader(content, limits, packed=packed)
    if format == "array":
        return ArrayReader(content, max_line_bytes=limits.line_bytes)
    if format in {"csv", "tsv"}:
        delimiter = find_delimiter(content.peek(), name)
        return TableReader(content, max_line_bytes=limits.line_bytes, delimiter=delimiter)
    return LineReader(content, max_line_bytes=limits.line_bytes)


def _bounded(rows: Iterator[tuple[int, bytes | BadRow]], limits: Limits) -> Iterator[tuple[int, bytes | BadRow]]:
    for count, row in enumerate(rows, 1):
        if count > limits.rows:
            message = f"the file has more than {limits.rows:,} rows (GYMWEB_MAX_UPLOAD_ROWS)"
            raise FileRefused("too_many_rows", message, line=row[0], limit="GYMWEB_MAX_UPLOAD_ROWS")
        yield row
