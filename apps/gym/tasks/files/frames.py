"""Whether zstd data is whole: the library reads a file that was cut off as if it had ended there (RFC 8878, 3.1)."""

from apps.gym.tasks.files.file_limits import READ_BYTES, FileRefused, Readable

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)


class ZstdFrames:
    """Hands on what it reads, and walks over the frames and blocks in it to know whether the end is one."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._head = b""
        self._skip = 0
        self._at = "frame"
        self._checksum = 0

    def read(self, size: int = READ_BYTES, /) -> bytes:
        block = self._stream.read(size)
        if not block and (self._at != "frame" or self._head or self._skip):
            raise FileRefused("cut_off", "the zstd data ends before its end: the file was cut off")
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
            # The decompressor will say what is wrong with it.
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
