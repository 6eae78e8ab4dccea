"""Read the lines of a stream, with a limit on their length."""

from collections.abc import Iterator

from apps.gym.tasks.files.file_limits import KEPT_OF_LONG_ROW, READ_BYTES, BadRow, Readable, too_long

BOM = b"\xef\xbb\xbf"


class LineReader:
    """Yield the lines of a binary stream with numbers from 1, without their line feeds.

    Blank lines are left out unless `blank`. `ends_with_newline` is known after the last line.

    Holds at most one line of `max_line_bytes` and one block of 256 KB. Of a longer line only the start is kept.
    """

    def __init__(self, stream: Readable, *, max_line_bytes: int, blank: bool = False) -> None:
        self._stream = stream
        self._limit = max_line_bytes
        self._blank = blank
        self.ends_with_newline = True
        self._held: list[bytes] = []
        self._size = 0
        self._number = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | BadRow]]:
        while block := self._stream.read(READ_BYTES):
            *whole, rest = block.split(b"\n")
            for piece in whole:
                self._hold(piece)
                yield from self._line()
            self._hold(rest)
        if self._size:
            self.ends_with_newline = False
            yield from self._line()

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
        elif self._blank or line.strip():
            yield self._number, line
