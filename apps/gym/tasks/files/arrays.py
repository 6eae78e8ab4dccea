"""Split a JSON array into its rows without parsing it, by brackets and quotes alone."""

import re
from collections.abc import Iterator

from apps.gym.tasks.files.file_limits import READ_BYTES, FileRefused, Readable
from apps.gym.tasks.files.lines import BOM

_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"[{", b"]}"
_ARRAY, _END_OF_ARRAY, _QUOTE, _BACKSLASH = b'[]"\\'


class ArrayReader:
    """Yield the elements of one array as bytes, with numbers from 1.

    Errors inside an element are left to its parser; errors of the array reject the file.
    """

    def __init__(self, stream: Readable, *, max_line_bytes: int) -> None:
        self._stream = stream
        self._limit = max_line_bytes
        self._held: list[bytes] = []
        self._size = 0
        self._number = 0
        self._depth = 0
        self._in_text = False
        self._skip = 0
        self._ended = False
        self._after_comma = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        first = True
        while block := self._stream.read(READ_BYTES):
            if first:
                block, first = block.removeprefix(BOM), False
            yield from self._read(block)
        if not self._ended:
            message = f"the array is not closed: the file is truncated in row {self._number + 1:,}"
            raise FileRefused("cut_off", message, line=self._number + 1)

    def _read(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        # A backslash at the end of the last block escapes the first character of this one.
        start, position = 0, self._skip
        while found := (_INSIDE if self._in_text else _OUTSIDE).search(block, position):
            at = found.start()
            sign, position = block[at], at + 1
            if self._in_text:
                self._in_text = sign == _BACKSLASH
                position += self._in_text
            elif self._depth == 0:
                self._begin(block[start:at], sign)
                start = at + 1
            elif self._ends_element(sign):
                self._hold(block[start:at])
                yield from self._element(last=self._ended)
                start = at + 1
        self._skip = max(0, position - len(block))
        if self._depth:
            self._hold(block[start:])
        else:
            self._check_between(block[start:])

    def _begin(self, between: bytes, sign: int) -> None:
        self._check_between(between)
        if self._ended or sign != _ARRAY:
            raise self._outside()
        self._depth = 1

    def _ends_element(self, sign: int) -> bool:
        """Process a sign inside the array but outside texts. Return True if it ends an element."""
        if sign == _QUOTE:
            self._in_text = True
        elif sign in _OPENING:
            self._depth += 1
        elif sign in _CLOSING:
            self._depth -= 1
            if self._depth == 0 and sign != _END_OF_ARRAY:
                raise FileRefused("not_an_array", "the array is closed by a }", line=self._number + 1)
            self._ended = self._depth == 0
            return self._ended
        else:
            return self._depth == 1
        return False

    def _check_between(self, between: bytes) -> None:
        """Raise FileRefused unless there is only white space around the array."""
        if between.strip():
            raise self._outside()

    def _outside(self) -> FileRefused:
        return FileRefused("not_an_array", "there is text outside the array", line=self._number + 1)

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            # The end of a long line is cheap to find, but here every bracket would have to be counted.
            message = f"row {self._number + 1:,} has more than {self._limit:,} bytes (GYMWEB_MAX_LINE_BYTES)"
            raise FileRefused("too_long", message, line=self._number + 1, limit="GYMWEB_MAX_LINE_BYTES")
        self._held.append(piece)

    def _element(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        element = b"".join(self._held).strip()
        self._held, self._size = [], 0
        if not element and last and not self._after_comma:
            return  # an empty array
        self._number += 1
        self._after_comma = not last
        if not element:
            raise FileRefused("not_an_array", f"row {self._number:,} is empty: extra comma", line=self._number)
        yield self._number, element
