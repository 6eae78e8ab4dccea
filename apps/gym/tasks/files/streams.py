"""Streams of bytes under everything that reads files: counted, peeked into, and unpacked under a limit."""

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
from apps.gym.tasks.files.frames import ZstdFrames

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Counted:
    """Counts what was read, and lets the first block be looked at."""

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.count = 0
        self._peeked = b""

    def peek(self) -> bytes:
        """The first block; called before anything was read."""
        # A pipe gives what it has: the start of a Parquet file or of a first line is longer than one byte.
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
        """The open file behind it, from its start, where it is one that can be read anywhere."""
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
    """The content of a gzip or zstd stream, under the limits of size and ratio."""

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
    """gzip with any number of members, never more than `size` bytes at a time. The file's checksums are checked."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._inflate = zlib.decompressobj(31)
        self._rest = b""

    def read(self, size: int = READ_BYTES, /) -> bytes:
        while True:
            if self._inflate.eof:
                self._rest = self._inflate.unused_data or self._packed.read(PACKED_BYTES)
                # Zeros after the last member are how tapes pad.
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
                raise FileRefused("cut_off", "the gzip data ends before its end: the file was cut off")


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
                message = f"a zstd window over {MAX_ZSTD_WINDOW:,} bytes: pack the file with zstd -19 or less"
                raise FileRefused("window_too_large", message, limit="zstd window") from None
            raise FileRefused("not_zstd", f"the zstd data is broken: {error}") from None


def unpack(packed: Counted, limits: Limits) -> tuple[Counted, str]:
    """The content of the stream, and how it was packed: "gzip", "zstd" or nothing."""
    start = packed.peek()
    kind = "gzip" if start.startswith(GZIP) else "zstd" if start.startswith(ZSTD) else ""
    if not kind:
        return packed, ""
    unpacker: Readable = _Gunzip(packed) if kind == "gzip" else _Unzstd(packed)
    content = Counted(Unpacked(packed, unpacker, limits))
    if content.peek().startswith((GZIP, ZSTD)):
        raise FileRefused("packed_twice", "the file is packed twice: unpack it once")
    return content, kind
