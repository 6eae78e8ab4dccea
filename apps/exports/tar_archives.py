"""The folder of an export as one tar, made while it is sent: its length is known before, and it can begin anywhere."""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 256 * 1024
_BLOCK = 512
_END = bytes(2 * _BLOCK)


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes that are there already, or a file."""

    size: int
    text: bytes = b""
    path: Path | None = None

    def read(self, start: int, length: int) -> Iterator[bytes]:
        if self.path is None:
            yield self.text[start : start + length]
            return
        with self.path.open("rb") as file:
            file.seek(start)
            while length and (chunk := file.read(min(CHUNK_BYTES, length))):
                length -= len(chunk)
                yield chunk


@dataclass(frozen=True, slots=True)
class Archive:
    size: int
    etag: str
    changed: float
    parts: Sequence[_Part]

    def read(self, start: int, length: int) -> Iterator[bytes]:
        """So many bytes from there on."""
        before = 0
        for part in self.parts:
            first, last = max(start, before), min(start + length, before + part.size)
            if first < last:
                yield from part.read(first - before, last - first)
            before += part.size


def archive_files(paths: Sequence[Path], *, folder: str, digests: Mapping[str, str]) -> Archive:
    """Of these files, below a folder of this name. `digests` are the checksums that are known, by name."""
    parts: list[_Part] = []
    marks = hashlib.sha256()
    changed = 0.0
    for path in paths:
        stat = path.stat()
        head = tarfile.TarInfo(f"{folder}/{path.name}")
        head.size, head.mtime, head.mode = stat.st_size, int(stat.st_mtime), 0o644
        text = head.tobuf(tarfile.PAX_FORMAT)
        filler = bytes(-stat.st_size % _BLOCK)
        parts += [_Part(len(text), text), _Part(stat.st_size, path=path), _Part(len(filler), filler)]
        marks.update(text + digests.get(path.name, "").encode())
        changed = max(changed, stat.st_mtime)
    parts.append(_Part(len(_END), _END))
    size = sum(part.size for part in parts)
    return Archive(size=size, etag=marks.hexdigest(), changed=changed, parts=parts)
