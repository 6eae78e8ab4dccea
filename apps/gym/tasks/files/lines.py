"""Read the lines of a stream, with a limit on their length."""

import re
from collections.abc import Iterator

from apps.gym.tasks.files.file_limits import KEPT_OF_LONG_ROW, READ_BYTES, BadRow, Readable, too_long

BOM = b"\xef\xbb\xbf"
NOT_SPACE = re.compile(rb"\S")


class LineReader:
    """Yield the lines of a binary stream with numbers from 1, without their line feeds.

    Blank lines are left out: lines without a byte that `content` matches. Many of them are skipped at once. `content`
    may be changed between two lines; with None, no line is blank. `ends_with_newline` is known after the last line.

    Holds at most one line of `max_line_bytes` and one block of 256 KB. Of a longer line only the start is kept.
    """

    def __init__(self, stream: Readable, *, max_line_bytes: int) -> None:
        self._stream = stream
        self._limit = max_line_bytes
        self.content: re.Pattern[bytes] | None = NOT_SPACE
        self.ends_with_newline = True
        self._held: list[bytes] = []
        self._size = 0
        self._number = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | BadRow]]:
        # Smaller blocks for a low limit: a blank line above the limit must not be skipped within a block.
        while block := self._stream.read(min(READ_BYTES, self._limit)):
            position = 0
            while True:
                if not self._size:
                    position = self._skip_blank(block, position)
                end = block.find(b"\n", position)
                if end < 0:
                    break
                self._hold(block[position:end])
                yield from self._line()
                position = end + 1
            self._hold(block[position:])
        if self._size:
            self.ends_with_newline = False
            yield from self._line()

    def _skip_blank(self, block: bytes, position: int) -> int:
        """Count the blank lines that begin and end in this block. Return the start of the next line."""
        if self.content is None:
            return position
        found = self.content.search(block, position)
        start = block.rfind(b"\n", position, found.start() if found else len(block)) + 1
        if start <= position:
            return position
        self._number += block.count(b"\n", position, start)
        return start

    def _hold(self, piece: bytes) -> None:
        was_too_long = self._size > self._limit
        self._size += len(piece)
        if self._size <= self._limit:
            self._held.append(piece)
        elif not was_too_long:
            self._held = [b"".join([*self._held, piece])[:KEPT_OF_LONG_ROW]]

    def _line(self) -> Iterator[tuple[int, bytes | BadRow]]:
        line, size = b"".join(self._held), self._size
        self._held, self._size = [], 0
        self._number += 1
        if self._number == 1:
            line = line.removeprefix(BOM)
        if size > self._limit:
            yield self._number, BadRow("too_long", too_long(size, self._limit), line[:KEPT_OF_LONG_ROW])
        elif self.content is None or self.content.search(line):
            yield self._number, line
