"""Request bodies on disk: who may send how much, how much may lie there at once, and the files themselves."""

import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.urls import Resolver404, resolve

from apps.accounts.disk_space import REMEDY, is_disk_full, measure

KEPT_IN_MEMORY = 64 * 1024
LOOK_AT_DISK_BYTES = 1024**2
"""How much of a body is written until the free space of the disk is measured again."""


class BodyRefused(Exception):
    """The body must not come, or not go on; `status` and `title` are HTTP's, `kind` ends the problem's type."""

    def __init__(self, status: int, title: str, detail: str, *, kind: str = "too-large") -> None:
        super().__init__(detail)
        self.status, self.title, self.kind = status, title, kind


class SpoolDiskFull(BodyRefused):
    """The disk of the spool cannot take the body."""

    def __init__(self, detail: str) -> None:
        super().__init__(507, "Insufficient Storage", detail, kind="disk-full")


def body_limit(method: bytes, path: bytes, *, authorization: Iterable[bytes], cookies: Iterable[bytes]) -> int:
    """How many bytes a body may have: files only where they are uploaded, and from callers who at least say who they
    are. Whether that is true is found out when the body is here."""
    known = any(authorization) or any(_has_session(header) for header in cookies)
    if known and method == b"POST" and _takes_files(path):
        return int(settings.MAX_BODY_BYTES)
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def _takes_files(path: bytes) -> bool:
    try:
        match = resolve(unquote_to_bytes(path.split(b"?", 1)[0]).decode())
    except (Resolver404, UnicodeDecodeError):
        return False
    return match.view_name in settings.LARGE_BODY_ROUTES


def _has_session(header: bytes) -> bool:
    pairs = (pair.strip().partition(b"=") for pair in header.split(b";"))
    return any(name == settings.SESSION_COOKIE_NAME.encode() and value for name, _, value in pairs)


def check_size(size: int, limit: int) -> None:
    """Raise BodyRefused where the limit is passed."""
    if size > limit:
        is_file = limit == settings.MAX_BODY_BYTES
        name = "GYMWEB_MAX_BODY_BYTES" if is_file else "the limit for all but uploads with a key or a session"
        detail = f"This address takes bodies of at most {limit:,} bytes ({name})."
        raise BodyRefused(413, "Content Too Large", detail)


def check_room(coming: int = 0) -> None:
    """Raise BodyRefused where so many bytes more are too many for now."""
    if spool.size + coming > settings.MAX_SPOOLED_BYTES:
        detail = "Too many bodies arrive at once (GYMWEB_MAX_SPOOLED_BYTES). Try again in a minute."
        raise BodyRefused(503, "Service Unavailable", detail)


def check_disk(coming: int = 0) -> None:
    """Raise BodyRefused if so many more bytes would use up the reserve of the disk (GYMWEB_MIN_FREE_BYTES)."""
    if shortage := measure(settings.FILE_UPLOAD_TEMP_DIR, coming=coming):
        raise SpoolDiskFull(str(shortage))


class Spool:
    """What all bodies have on disk now. Files are closed by whatever thread."""

    def __init__(self) -> None:
        self.size = 0
        # The garbage collector closes files wherever it likes, also within `grow`.
        self._lock = threading.RLock()

    def grow(self, size: int) -> None:
        with self._lock:
            self.size += size


spool = Spool()


class _File(tempfile.SpooledTemporaryFile[bytes]):
    """Is counted until it is closed, whoever closes it, be it the garbage collector."""

    counted = 0

    def count(self, size: int) -> None:
        spool.grow(size - self.counted)
        self.counted = size

    def close(self) -> None:
        self.count(0)
        # Closing writes what is buffered, which a full disk refuses once more.
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
    """A request body on disk. Twisted writes it, Daphne finds it empty, the application takes it in pieces or whole.

    Daphne would queue all of it in memory before the application sees the first byte.
    """

    def __init__(self) -> None:
        self._file = _File(max_size=KEPT_IN_MEMORY, dir=settings.FILE_UPLOAD_TEMP_DIR)
        self._handed_over = False

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> None:
        """Raises BodyRefused where there is no room for it."""
        before = self._file.tell()
        size = before + len(data)
        # A form of usual size never touches the disk: people can sign in while it is full of others' files.
        if size > KEPT_IN_MEMORY:
            check_room(size - self._file.counted)
            if before <= KEPT_IN_MEMORY or size // LOOK_AT_DISK_BYTES > before // LOOK_AT_DISK_BYTES:
                check_disk(len(data))
            self._file.count(size)
        with _refuse_when_full():
            self._file.write(data)

    def finish(self) -> None:
        """Write what is buffered: reading the body must not fail later. Raises BodyRefused."""
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

    def hand_over(self) -> IO[bytes]:
        """The file itself: from now on the taker closes it, also where the client has left meanwhile."""
        self._handed_over = True
        return self._file

    def close(self) -> None:
        if not self._handed_over:
            self._file.close()
