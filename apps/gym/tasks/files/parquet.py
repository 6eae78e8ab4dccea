"""Read Parquet in a separate process: the unpacked size of a page is known only in memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from apps.gym.redaction.shortening import cut
from apps.gym.tasks.files.file_limits import BadRow, FileRefused, Limits, Readable
from apps.gym.tasks.files.lines import LineReader
from apps.gym.tasks.files.streams import Counted, seekable

ROOT = Path(__file__).resolve().parents[4]
MAGIC = b"PAR1"
_ROW, _BAD_ROW, _REFUSED = b"+", b"-", b"!"


class ParquetReader:
    """The rows of a Parquet file as JSON, numbered from 1."""

    def __init__(self, content: Counted, limits: Limits, *, packed: bool) -> None:
        self._content, self._limits, self._packed = content, limits, packed

    def __iter__(self) -> Iterator[tuple[int, bytes | BadRow]]:
        # A Parquet file has its index at the end.
        with seekable(self._content, self._limits, packed=self._packed) as file:
            yield from self._read(file)

    def _read(self, file: IO[bytes]) -> Iterator[tuple[int, bytes | BadRow]]:
        descriptor = file.fileno()
        limits = [self._limits.rows, self._limits.unpacked_bytes, self._limits.parquet_bytes, self._limits.line_bytes]
        command = [sys.executable, "-m", "apps.gym.tasks.files.parquet_process", str(descriptor), *map(str, limits)]
        # Its standard error has messages of Arrow about an untrusted file, so only the exit code is used.
        with subprocess.Popen(  # noqa: S603
            command,
            cwd=ROOT,
            # Without keys or the database URL of this process.
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(descriptor,),
        ) as process:
            assert process.stdout
            try:
                yield from self._rows(process.stdout)
            finally:
                process.kill()
        if process.returncode not in (0, -9):
            raise too_much_memory(self._limits.parquet_bytes)

    def _rows(self, pipe: Readable) -> Iterator[tuple[int, bytes | BadRow]]:
        ended = False
        # Twice the limit: a text is longer in JSON than in Parquet, and the other process has checked the limit
        # already.
        for number, line in LineReader(pipe, max_line_bytes=2 * self._limits.line_bytes + 1024):
            if isinstance(line, BadRow):
                yield number, line
            elif line.startswith(_ROW):
                yield number, line[1:]
            elif line.startswith(_BAD_ROW):
                yield number, BadRow(**orjson.loads(line[1:]), head=b"")
            elif line.startswith(_REFUSED):
                told: dict[str, Any] = orjson.loads(line[1:])
                words = f": {cut(told['words'], 200)}" if "words" in told else ""
                raise FileRefused(told["code"], f"{told['message']}{words}", limit=told.get("limit", ""))
            else:
                ended = True
        if not ended:
            raise too_much_memory(self._limits.parquet_bytes)


def too_much_memory(limit: int) -> FileRefused:
    return FileRefused(
        "page_too_large",
        f"a page or row group takes more than {limit:,} bytes of memory (GYMWEB_PARQUET_MEMORY_BYTES): write the file "
        "with smaller pages and row groups",
        limit="GYMWEB_PARQUET_MEMORY_BYTES",
    )
