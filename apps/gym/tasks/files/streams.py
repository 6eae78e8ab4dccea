"""Byte streams for reading files: counted, with a preview of the first block, and decompressed within limits."""

import zlib
from typing import IO, Any

from apps.gym.tasks.files.file_limits import (
    MAX_ZSTD_WINDOW,
    PACKED_BYTES,
    RATIO_COUNTS_FROM,
    READ_BYTES,
    FileRefused,
    Limits,
    Readable,
)

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)


class ZstdFrames:
    """Passes data through, and parses its frames and blocks to detect a truncated end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._head = b""
        self._skip = 0
        self._at = "frame"
        self._checksum = 0

    def read(self, size: int = READ_BYTES, /) -> bytes:
        block = self._stream.read(size)
        if not block and (self._at != "frame" or self._head or self._skip):
            raise FileRefused("cut_off", "the zstd data is truncated")
        self._walk(block)
        return block

    def _walk(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            if self._skip:
                passed = min(self._skip, len(data) - position)
                self._skip -= passed
                position += passed
                continue
            self._head += data[position : position + 1]
            position += 1
            if self._at == "block":
                self._read_block()
            else:
                self._read_frame()

    def _read_frame(self) -> None:
        head = self._head
        if head[:4] == _MAGIC and len(head) == 5:
            mark = head[4]
            single = mark >> 5 & 1
            self._skip = (not single) + _DICTIONARY_BYTES[mark & 3] + (_SIZE_BYTES[mark >> 6] or single)
            self._checksum = 4 if mark & 4 else 0
            self._head, self._at = b"", "block"
        elif head[1:4] == b"\x2a\x4d\x18" and len(head) == 8:
            self._skip, self._head = int.from_bytes(head[4:], "little"), b""
        elif len(head) >= 8:
            # The decompressor reports the error.
            self._skip = 2**62

    def _read_block(self) -> None:
        if len(self._head) < 3:
            return
        block = int.from_bytes(self._head, "little")
        is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
        self._skip = 1 if kind == 1 else size
        if is_last:
            self._skip += self._checksum
            self._at = "frame"
        self._head = b""


GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Counted:
    """Count bytes read, and allow to peek at the first block."""

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.count = 0
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
        return block

    def as_file(self) -> IO[bytes] | None:
        """Return the underlying open file at its start, or None if it is not seekable."""
        stream: Any = self.stream
        try:
            if stream.seekable():
                stream.fileno()
                stream.seek(0)
                return stream  # type: ignore[no-any-return]
        except (AttributeError, OSError):
            pass
        return None


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


class _Gunzip:
    """Decompress gzip with any number of members, at most `size` bytes per read. Checksums are checked."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._inflate = zlib.decompressobj(31)
        self._rest = b""

    def read(self, size: int = READ_BYTES, /) -> bytes:
        while True:
            if self._inflate.eof:
                self._rest = self._inflate.unused_data or self._packed.read(PACKED_BYTES)
                # Skip zero padding after the last member, as on tapes.
                if not self._rest.strip(b"\x00"):
                    return b""
                self._inflate = zlib.decompressobj(31)
            held = self._inflate.unconsumed_tail or self._rest or self._packed.read(PACKED_BYTES)
            self._rest = b""
            try:
                block = self._inflate.decompress(held, size)
            except zlib.error as error:
                raise FileRefused("not_gzip", f"the gzip data is broken: {error}") from None
            if block:
                return block
            if not held and not self._inflate.eof:
                raise FileRefused("cut_off", "the gzip data is truncated")


class _Unzstd:
    def __init__(self, packed: Readable) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        whole: Any = ZstdFrames(packed)
        self._reader: Any = decompressor.stream_reader(whole, read_size=PACKED_BYTES, read_across_frames=True)

    def read(self, size: int = READ_BYTES, /) -> bytes:
        try:
            return bytes(self._reader.read(size))
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
    content = Counted(Unpacked(packed, unpacker, limits))
    if content.peek().startswith((GZIP, ZSTD)):
        raise FileRefused("packed_twice", "the file is compressed twice. Decompress it once")
    return content, kind
