"""Limits of files. A refusal names the setting that was exceeded, so that an operator can raise it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

READ_BYTES = 256 * 1024
PACKED_BYTES = 16 * 1024
"""Compressed bytes per read: a block may contain many rows, and progress counts blocks."""
ZSTD_BYTES = 256
"""The same for zstd, whose decompressor does not limit its output: 256 bytes unpack to 8 MiB at most."""
MAX_DEPTH = 100
RATIO_COUNTS_FROM = 64 * 1024**2
"""Files that unpack to less than this may have any compression ratio."""
MAX_ZSTD_WINDOW = 64 * 1024**2
KEPT_OF_LONG_ROW = 16 * 1024
"""More than the shown part, because it is redacted before it is cut: a credential must not be cut here."""


class Readable(Protocol):
    """The interface of uploads: open files, spooled request bodies, standard input."""

    def read(self, size: int = ..., /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes and rows, and the ratio of unpacked to packed bytes. The defaults are those of the settings."""

    line_bytes: int = 8 * 1024**2
    rows: int = 5_000_000
    unpacked_bytes: int = 16 * 1024**3
    ratio: int = 200
    parquet_bytes: int = 64 * 1024**2
    folder: str | None = None
    """Folder in which a packed Parquet file is unpacked, or None for the system's temporary folder."""
    check_folder: Callable[[str], object] | None = None
    """Called with the folder while a file is unpacked to it. Raises if its disk has too little space."""
    on_read: Callable[[], object] | None = None
    """Called after each block of 256 KB or less, also where a file has no rows. May raise to stop reading."""


class FileRefused(Exception):
    """Raised if the file cannot be read (any further). `code` is stable; `limit` names the exceeded setting, if any."""

    def __init__(self, code: str, message: str, *, line: int = 1, limit: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.line, self.limit = code, message, line, limit


FILE_CODES = frozenset(
    {
        "bad_header", "cut_off", "not_an_array", "not_gzip", "not_parquet", "not_text", "not_zip", "not_zstd",
        "packed_twice", "page_too_large", "too_many_bad_rows", "too_many_columns", "too_many_rows", "unknown_format",
        "unpacks_too_large", "window_too_large",
    }
)  # fmt: skip
"""Codes that never refer to a single row."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be extracted from its file: the reason, and its start."""

    code: str
    message: str
    head: bytes


def too_long(size: int, limit: int, what: str = "line") -> str:
    return f"{size:,} bytes in one {what}: the limit is {limit:,} (GYMWEB_MAX_LINE_BYTES)"
