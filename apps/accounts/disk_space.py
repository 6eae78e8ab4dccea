"""Check whether the disks to which GymWeb writes have free space.

Disks of this machine are measured. A database server's disk may be elsewhere: its errors show that it is full, and a
probe shows whether it still is.
"""

import errno
import math
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from apps.gym.request_refusals import Refusal

DEFAULT_RESERVE = 1024**3
RESERVE_SHARE = 20
"""By default the reserve is at most this fraction (1/20) of a disk: a small disk is not full while it is empty."""
LOOK_SECONDS = 1.0
PROBE_SECONDS = 5.0
PROBE_BYTES = 1024**2
_PROBE_ROWS = 40_000
"""Rows of a number that PostgreSQL writes to a temporary file of about PROBE_BYTES."""
REMEDY = "Delete exports, uploads or collections, or enlarge the disk. Work resumes automatically when there is space."


class Place(Enum):
    """The purpose of a disk. One disk may have both."""

    DATABASE = "database"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Shortage:
    """A disk with too little free space. Sizes are bytes; `folder` is empty for the disk of a database server."""

    place: Place
    folder: str = ""
    free: int = 0
    needed: int = 0

    @property
    def disk(self) -> str:
        """Return the name of the disk without its folder, for callers who may not see that."""
        if self.place is Place.FILES:
            return "the disk of uploads and exports (GYMWEB_VAR)"
        return "the disk of the database" if self.folder else "the disk of the database server"

    @property
    def figures(self) -> str:
        if not self.folder:
            return "the server refuses writes"
        return f"{show_bytes(self.free)} free, {show_bytes(self.needed)} needed"

    def __str__(self) -> str:
        return f"{self.disk[0].upper()}{self.disk[1:]} is full: {self.figures}. {REMEDY}"


class DiskFull(Refusal, status=507, code="disk-full"):
    """A disk has too little space for the request. Retry after `wait` seconds."""

    wait = PROBE_SECONDS

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(str(shortage))
        self.shortage = shortage


def show_bytes(number: int) -> str:
    return f"{number / 1024**2:,.1f} MB" if number < 1024**3 else f"{number / 1024**3:,.1f} GB"


def reserve_of(total: int) -> int:
    """Return how many bytes of a disk of this size stay free."""
    given: int | None = settings.MIN_FREE_BYTES
    return min(DEFAULT_RESERVE, total // RESERVE_SHARE) if given is None else given


def measure(folder: str | Path, *, place: Place = Place.FILES, coming: int = 0) -> Shortage | None:
    """Return the shortage of the disk of a folder when `coming` more bytes are written to it."""
    usage = shutil.disk_usage(folder)
    needed = reserve_of(usage.total) + coming
    return Shortage(place, str(folder), usage.free, needed) if usage.free < needed else None


def check_folder(folder: str | Path, *, coming: int = 0) -> None:
    """Raise DiskFull if `coming` more bytes in this folder would leave less than the reserve."""
    if shortage := measure(folder, coming=coming):
        raise DiskFull(shortage)


def find_shortage(place: Place | None = None) -> Shortage | None:
    """Return the shortage of a place, or of any. At most a second old. May query the database."""
    return _watch.find(place)


def check_growth(coming: int) -> None:
    """Raise DiskFull if the database is short of space, or would be after growing by `coming` bytes."""
    check_space(Place.DATABASE)
    # SQLite writes rows to the write-ahead log first, and copies them to the database later.
    if shortage := _measure_database(2 * coming):
        raise DiskFull(shortage)


def check_space(place: Place | None = None) -> None:
    """Raise DiskFull if a place, or any, has too little space."""
    if shortage := find_shortage(place):
        raise DiskFull(shortage)


def folder_room(folder: str | Path) -> int | None:
    """Return how many bytes may be written before the disk of this folder reaches the reserve.

    None if there is no such folder.
    """
    try:
        usage = shutil.disk_usage(folder)
    except FileNotFoundError:
        return None
    return usage.free - reserve_of(usage.total)


def database_room() -> int | None:
    """Return how many bytes the database may grow before it reaches the reserve. None for a database server."""
    folder = _database_folder()
    room = folder_room(folder) if folder else None
    return None if folder is None or room is None else room + _reusable_bytes(folder)


def note_error(error: BaseException | None) -> bool:
    """Return True if the error means that a disk is full, and remember this until a probe succeeds."""
    if not is_disk_full(error):
        return False
    if isinstance(error, DatabaseError):
        _watch.refuse()
    return True


def forget() -> None:
    """Clear all cached measurements and errors."""
    _watch.forget()


@contextmanager
def skip_when_full() -> Iterator[None]:
    """Skip an optional write, for example the last use of a key."""
    try:
        yield
    except DatabaseError as error:
        if not note_error(error):
            raise


def is_disk_full(error: BaseException | None) -> bool:
    """Return True for errors of the system, SQLite and PostgreSQL on a full disk, and for DiskFull."""
    while error is not None:
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}):
            return True
        name = str(getattr(error, "sqlite_errorname", ""))
        if name == "SQLITE_FULL" or (name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _is_used_up()):
            return True
        if getattr(error, "sqlstate", None) == "53100" or (
            isinstance(error, DatabaseError) and "No space left on device" in str(error)
        ):
            return True
        error = error.__cause__
    return False


class _Watch:
    """This process's knowledge of its disks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._looked_at = self._probed_at = -math.inf
        self._has_looked = self._refused = False
        self._short: dict[Place, Shortage] = {}

    def refuse(self) -> None:
        self._refused = True
        self._probed_at, self._looked_at = time.monotonic(), -math.inf

    def find(self, place: Place | None) -> Shortage | None:
        # While another thread measures, the last result is returned, if there is one.
        if time.monotonic() - self._looked_at >= LOOK_SECONDS and self._lock.acquire(blocking=not self._has_looked):
            try:
                self._short = {shortage.place: shortage for shortage in self._look()}
                self._looked_at, self._has_looked = time.monotonic(), True
            finally:
                self._lock.release()
        return self._short.get(place) if place else next(iter(self._short.values()), None)

    def _look(self) -> list[Shortage]:
        found = list(self._measure())
        return list(self._measure()) if found and _shrink_log() else found

    def _measure(self) -> Iterator[Shortage]:
        for folder in (settings.UPLOADS_DIR, settings.EXPORTS_DIR, settings.FILE_UPLOAD_TEMP_DIR):
            if Path(folder).is_dir() and (shortage := measure(folder)):
                yield shortage
        database = _measure_database()
        if database is None and self._still_refused():
            where = _database_folder()
            database = Shortage(Place.DATABASE, str(where or ""), shutil.disk_usage(where).free if where else 0)
        if database:
            yield database

    def _still_refused(self) -> bool:
        """Probe the database if its disk cannot be measured, or an error reported a full disk."""
        if (self._refused or connection.vendor == "postgresql") and not connection.in_atomic_block:
            now = time.monotonic()
            if now - self._probed_at >= PROBE_SECONDS:
                self._probed_at = now
                self._refused = _probe(was_refused=self._refused)
        return self._refused


_watch = _Watch()


def _measure_database(coming: int = 0) -> Shortage | None:
    folder = _database_folder()
    shortage = measure(folder, place=Place.DATABASE, coming=coming) if folder else None
    if folder and shortage and shortage.free + _reusable_bytes(folder) >= shortage.needed:
        return None
    return shortage


def _database_folder() -> Path | None:
    """Return the folder of the SQLite file; None for one in memory and for a database server."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or ":memory:" in name or "mode=memory" in name:
        return None
    folder = Path(name).parent
    return folder if folder.is_dir() else None


def _reusable_bytes(folder: Path) -> int:
    """Return the bytes of free pages, which SQLite reuses: a file does not shrink when rows are deleted.

    They count only while the disk has some space for the write-ahead log.
    """
    usage = shutil.disk_usage(folder)
    if usage.free * 4 < reserve_of(usage.total):
        return 0
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT freelist_count * page_size FROM pragma_freelist_count(), pragma_page_size()")
            return int(cursor.fetchone()[0])
    except DatabaseError:
        return 0


def _shrink_log() -> bool:
    """Return True if SQLite's write-ahead log gave space back: it keeps the size of the largest transaction otherwise.

    It cannot shrink while another connection writes, or reads rows that only the log has.
    """
    folder = _database_folder()
    if folder is None:
        return False
    name = str(connection.settings_dict["NAME"])
    log = Path(f"{name}-wal")
    try:
        size = log.stat().st_size
        if size == 0:
            return False
        with closing(sqlite3.connect(name, timeout=0.1)) as own:
            own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return log.stat().st_size < size
    except (OSError, sqlite3.Error):
        return False


def _is_used_up() -> bool:
    """Return True if the disk is full. SQLite raises various errors on a full disk, so the disk itself is checked."""
    folder = _database_folder()
    return folder is not None and shutil.disk_usage(folder).free < PROBE_BYTES


def _probe(*, was_refused: bool) -> bool:
    """Write a little where the database does, and return True if that is refused for want of space."""
    try:
        if (folder := _database_folder()) is not None:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0" * PROBE_BYTES)
        elif connection.vendor == "postgresql":
            with transaction.atomic(), connection.cursor() as cursor:
                # More than its memory: the server writes the numbers to a temporary file and deletes it.
                cursor.execute("SET LOCAL work_mem = '64kB'")
                cursor.execute("SELECT count(*) FROM generate_series(1, %s)", [_PROBE_ROWS])
        return False
    except (OSError, DatabaseError) as problem:
        connection.close_if_unusable_or_obsolete()
        # A server that stopped when its disk was full is not back yet; this does not show whether there is space.
        return is_disk_full(problem) or was_refused
