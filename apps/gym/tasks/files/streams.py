"""Byte streams for reading files: counted, with a preview of the first block, and decompressed within limits."""

import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, ClassVar

from apps.gym.tasks.files.file_limits import (
    MAX_ZSTD_WINDOW,
    PACKED_BYTES,
    RATIO_COUNTS_FROM,
    READ_BYTES,
    ZSTD_BYTES,
    FileRefused,
    Limits,
    Readable,
)

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Counted:
    """Count bytes read, and allow to peek at the first block."""

    def __init__(self, stream: Readable, on_read: Callable[[], object] | None = None) -> None:
        self.stream = stream
        self.count = 0
        self._on_read = on_read
        self._peeked = b""

    def peek(self) -> bytes:
        """Return the first block. Call this before reading."""
        # A pipe may return a single byte, which is too short to detect the format.
        while len(self._peeked) < READ_BYTES and (more := self.stream.read(READ_BYTES - len(self._peeked))):
            self._peeked += more
        return self._peeked

    def read(self, size: int = READ_BYTES, /) -> bytes:
        if self._peeked:
            block, self._peeked = self._peeked[:size], self._peeked[size:]
        else:
            block = self.stream.read(size)
        self.count += len(block)
        if self._on_read:
            self._on_read()
        return block

    def as_file(self) -> IO[bytes] | None:
        """Return the underlying open file at its start, or None if it is not seekable."""
        stream: Any = self.stream
        with suppress(AttributeError, OSError):
            if stream.seekable():
                stream.fileno()
                stream.seek(0)
                return stream  # type: ignore[no-any-return]
        return None


@contextmanager
def seekable(content: Counted, limits: Limits, *, packed: bool) -> Iterator[IO[bytes]]:
    """Return the content as a file that can be read from its end. A compressed one is unpacked to a temporary file."""
    file = None if packed else content.as_file()
    if file is not None:
        yield file
        content.count = file.seek(0, 2)
        return
    with tempfile.TemporaryFile(dir=limits.folder) as spooled:
        while block := content.read(READ_BYTES):
            if limits.folder and limits.check_folder:
                limits.check_folder(limits.folder)
            spooled.write(block)
        spooled.flush()
        yield spooled


class Unpacked:
    """The content of a gzip or zstd stream, within the limits of size and ratio."""

    def __init__(self, packed: Counted, unpack: Readable, limits: Limits) -> None:
        self._packed, self._unpack, self._limits = packed, unpack, limits
        self._count = 0

    def read(self, size: int = READ_BYTES, /) -> bytes:
        block = self._unpack.read(size)
        self._count += len(block)
        if self._count > self._limits.unpacked_bytes:
            message = f"the file unpacks to more than {self._limits.unpacked_bytes:,} bytes (GYMWEB_MAX_UNPACKED_BYTES)"
            raise FileRefused("unpacks_too_large", message, limit="GYMWEB_MAX_UNPACKED_BYTES")
        if self._count > RATIO_COUNTS_FROM and self._count > self._limits.ratio * self._packed.count:
            message = f"the file unpacks to more than {self._limits.ratio} times its size (GYMWEB_MAX_UNPACK_RATIO)"
            raise FileRefused("unpacks_too_large", message, limit="GYMWEB_MAX_UNPACK_RATIO")
        return block


class _Unpacker(ABC):
    """Decompress any number of members, each a stream of its own, in small steps. Checksums are checked."""

    kind: ClassVar[str]
    step: ClassVar[int]
    """Compressed bytes per read."""
    padding: ClassVar[bytes] = b""
    """Bytes that are skipped after the last member."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._rest = b""
        self._member = self._open()

    def read(self, size: int = READ_BYTES, /) -> bytes:
        while True:
            held = self._rest or self._packed.read(self.step)
            if self._member.eof:
                if not held.strip(self.padding):
                    return b""
                self._member = self._open()
            block, self._rest = self._decompress(held, size)
            if block:
                return block
            if not held and not self._member.eof:
                raise FileRefused("cut_off", f"the {self.kind} data is truncated")

    @abstractmethod
    def _open(self) -> Any:
        """Return a decompressor for one member."""

    @abstractmethod
    def _decompress(self, held: bytes, size: int) -> tuple[bytes, bytes]:
        """Return decompressed bytes, and the part of `held` that is left. Raises FileRefused."""


class _Gunzip(_Unpacker):
    kind = "gzip"
    step = PACKED_BYTES
    padding = b"\x00"  # as on tapes

    def _open(self) -> Any:
        return zlib.decompressobj(31)

    def _decompress(self, held: bytes, size: int) -> tuple[bytes, bytes]:
        try:
            block = self._member.decompress(held, size)
        except zlib.error as error:
            raise FileRefused("not_gzip", f"the gzip data is broken: {error}") from None
        return block, self._member.unconsumed_tail or self._member.unused_data


class _Unzstd(_Unpacker):
    kind = "zstd"
    step = ZSTD_BYTES

    def _open(self) -> Any:
        import zstandard

        self._error = zstandard.ZstdError
        return zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj(write_size=32 * 1024)

    def _decompress(self, held: bytes, size: int) -> tuple[bytes, bytes]:
        try:
            return self._member.decompress(held), self._member.unused_data
        except self._error as error:
            if "memory" in str(error):
                message = f"a zstd window over {MAX_ZSTD_WINDOW:,} bytes. Compress the file with zstd -19 or less"
                raise FileRefused("window_too_large", message, limit="zstd window") from None
            raise FileRefused("not_zstd", f"the zstd data is broken: {error}") from None


def unpack(packed: Counted, limits: Limits) -> tuple[Counted, str]:
    """Return the content of the stream, and its compression: "gzip", "zstd" or an empty text."""
    start = packed.peek()
    kind = "gzip" if start.startswith(GZIP) else "zstd" if start.startswith(ZSTD) else ""
    if not kind:
        return packed, ""
    unpacker: Readable = _Gunzip(packed) if kind == "gzip" else _Unzstd(packed)
    content = Counted(Unpacked(packed, unpacker, limits), limits.on_read)
    if content.peek().startswith((GZIP, ZSTD)):
        raise FileRefused("packed_twice", "the file is compressed twice. Decompress it once")
    return content, kind
