"""Spool request bodies to disk, with limits per request and in total."""

import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.urls import Resolver404, resolve

from apps.accounts.disk_space import REMEDY, is_disk_full, measure

KEPT_IN_MEMORY = 64 * 1024
LOOK_AT_DISK_BYTES = 1024**2
"""Bytes written before the free space of the disk is measured again."""

MAX_CALL_BYTES = 32 * 1024**2
"""Maximum bytes of a call of an external agent, enough for images."""


class BodyLimit(NamedTuple):
    """The maximum bytes of a body, and the name of this limit in errors."""

    size: int
    name: str


CALL_LIMIT = BodyLimit(MAX_CALL_BYTES, "limit of a model call")


class BodyRefused(Exception):
    """Raised to reject a body. `status` and `title` are HTTP's; `kind` is the last part of the problem type."""

    def __init__(self, status: int, title: str, detail: str, *, kind: str = "too-large") -> None:
        super().__init__(detail)
        self.status, self.title, self.kind = status, title, kind


class SpoolDiskFull(BodyRefused):
    """Raised if the disk has no space for the body."""

    def __init__(self, detail: str) -> None:
        super().__init__(507, "Insufficient Storage", detail, kind="disk-full")


def body_limit(method: bytes, path: bytes, *, authorization: Iterable[bytes], cookies: Iterable[bytes]) -> BodyLimit:
    """Return the limit of a body.

    Files are accepted only on upload routes and with credentials, which are verified after the body has arrived.
    """
    # First, because Django compares the path of a captured call with all routes, which takes long.
    if method == b"POST" and path.startswith((b"/capture/", b"/ng-rollout/")):
        return CALL_LIMIT
    known = any(authorization) or any(_has_session(header) for header in cookies)
    is_upload = method == b"POST" and _takes_files(path)
    if is_upload and known:
        return BodyLimit(int(settings.MAX_BODY_BYTES), "GYMWEB_MAX_BODY_BYTES")
    name = "limit without API key or session" if is_upload else "limit of requests other than uploads"
    return BodyLimit(int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE), name)


def _takes_files(path: bytes) -> bool:
    try:
        match = resolve(unquote_to_bytes(path.split(b"?", 1)[0]).decode())
    except (Resolver404, UnicodeDecodeError):
        return False
    return match.view_name in settings.LARGE_BODY_ROUTES


def _has_session(header: bytes) -> bool:
    pairs = (pair.strip().partition(b"=") for pair in header.split(b";"))
    return any(name == settings.SESSION_COOKIE_NAME.encode() and value for name, _, value in pairs)


def check_size(size: int, limit: BodyLimit) -> None:
    """Raise BodyRefused if the size is above the limit."""
    if size > limit.size:
        detail = f"The body is larger than {limit.size:,} bytes ({limit.name})."
        raise BodyRefused(413, "Content Too Large", detail)


def check_room(coming: int = 0) -> None:
    """Raise BodyRefused if `coming` more bytes would exceed the limit for all bodies."""
    if spool.size + coming > settings.MAX_SPOOLED_BYTES:
        detail = "Too many large requests (GYMWEB_MAX_SPOOLED_BYTES). Try again in a minute."
        raise BodyRefused(503, "Service Unavailable", detail)


def check_disk(coming: int = 0) -> None:
    """Raise BodyRefused if `coming` more bytes would use the reserve of the disk (GYMWEB_MIN_FREE_BYTES)."""
    if shortage := measure(settings.FILE_UPLOAD_TEMP_DIR, extra=coming):
        raise SpoolDiskFull(str(shortage))


class Spool:
    """Total size of all bodies on disk. Thread-safe."""

    def __init__(self) -> None:
        self.size = 0
        # Reentrant: garbage collection may close files at any point, also within `grow`.
        self._lock = threading.RLock()

    def grow(self, size: int) -> None:
        with self._lock:
            self.size += size


spool = Spool()


class _File(tempfile.SpooledTemporaryFile[bytes]):
    """A file that counts towards the total until it is closed or garbage-collected."""

    counted = 0

    def count(self, size: int) -> None:
        spool.grow(size - self.counted)
        self.counted = size

    def close(self) -> None:
        self.count(0)
        # Closing flushes the buffer, which fails again on a full disk.
        with suppress(OSError):
            super().close()

    def __del__(self) -> None:
        self.close()


@contextmanager
def _refuse_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        detail = f"The disk of request bodies ({settings.FILE_UPLOAD_TEMP_DIR}) is full. {REMEDY}"
        raise SpoolDiskFull(detail) from error


class SpooledBody:
    """A request body on disk.

    Twisted writes it. Daphne, which would buffer the body in memory, sees an empty one. The application reads the file
    in pieces or as a whole.
    """

    def __init__(self) -> None:
        self._file = _File(max_size=KEPT_IN_MEMORY, dir=settings.FILE_UPLOAD_TEMP_DIR)
        self._handed_over = False

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> None:
        """Append to the body. Raise BodyRefused if there is no space."""
        before = self._file.tell()
        size = before + len(data)
        # Small bodies stay in memory, so users can sign in while the disk is full.
        if size > KEPT_IN_MEMORY:
            check_room(size - self._file.counted)
            if before <= KEPT_IN_MEMORY or size // LOOK_AT_DISK_BYTES > before // LOOK_AT_DISK_BYTES:
                check_disk(len(data))
            self._file.count(size)
        with _refuse_when_full():
            self._file.write(data)

    def finish(self) -> None:
        """Flush the buffer, so that reading cannot fail later. Raise BodyRefused."""
        with _refuse_when_full():
            self._file.flush()

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> None:
        self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        return b""

    def take(self, size: int) -> bytes:
        return self._file.read(size)

    def detach(self) -> IO[bytes]:
        """Return the file. The caller must close it, even if the client has disconnected."""
        self._handed_over = True
        return self._file

    def close(self) -> None:
        if not self._handed_over:
            self._file.close()
