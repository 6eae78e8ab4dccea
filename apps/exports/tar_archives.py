"""Create a tar archive of an export's folder while it is sent.

Its length is known in advance, and sending can start at any offset.
"""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 256 * 1024
_BLOCK = 512
_END = bytes(2 * _BLOCK)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an archive: bytes in memory, or a file."""

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
    """An archive, or a single file, in parts. `etag` has no quotes; `changed` is in seconds since 1970."""

    size: int
    etag: str
    changed: float
    parts: Sequence[Part]

    def read(self, start: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes from `start`."""
        before = 0
        for part in self.parts:
            first, last = max(start, before), min(start + length, before + part.size)
            if first < last:
                yield from part.read(first - before, last - first)
            before += part.size


def archive_files(paths: Sequence[Path], *, folder: str, digests: Mapping[str, str]) -> Archive:
    """Return an archive of these files in a folder with this name. `digests` has known SHA-256 checksums by name."""
    parts: list[Part] = []
    marks = hashlib.sha256()
    changed = 0.0
    for path in paths:
        stat = path.stat()
        head = tarfile.TarInfo(f"{folder}/{path.name}")
        head.size, head.mtime, head.mode = stat.st_size, int(stat.st_mtime), 0o644
        text = head.tobuf(tarfile.PAX_FORMAT)
        filler = bytes(-stat.st_size % _BLOCK)
        parts += [Part(len(text), text), Part(stat.st_size, path=path), Part(len(filler), filler)]
        marks.update(text + digests.get(path.name, "").encode())
        changed = max(changed, stat.st_mtime)
    parts.append(Part(len(_END), _END))
    size = sum(part.size for part in parts)
    return Archive(size=size, etag=marks.hexdigest(), changed=changed, parts=parts)
