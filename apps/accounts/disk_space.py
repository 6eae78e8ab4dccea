"""Check free space on the disks to which GymWeb writes.

Local disks are measured. The disk of a database server may be on another machine: a failed write reports that it is
full, and probes find out when it has space again.
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
RESERVE_DIVISOR = 20
"""The default reserve is at most 1/RESERVE_DIVISOR of a disk, so that small disks are usable."""
MEASURE_SECONDS = 1.0
PROBE_SECONDS = 5.0
PROBE_BYTES = 1024**2
_PROBE_ROWS = 40_000
"""Number of rows for which PostgreSQL writes a temporary file of about PROBE_BYTES."""
LOW_FACTOR = 2
"""A disk is low below this multiple of its reserve, and full below the reserve."""
REMEDY = "Delete exports, uploads or collections, or enlarge the disk. Work resumes automatically when there is space."


class Place(Enum):
    """What a disk stores. One disk can store both."""

    DATABASE = "database"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Shortage:
    """A disk with too little free space. Sizes are in bytes. `folder` is empty for the disk of a database server."""

    place: Place
    folder: str = ""
    free: int = 0
    needed: int = 0

    @property
    def disk(self) -> str:
        """Return the name of the disk without its path, for users who may not see paths."""
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
    """Raised if a disk has too little space for the request. Retry after `wait` seconds."""

    wait = PROBE_SECONDS

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(str(shortage))
        self.shortage = shortage


def show_bytes(number: int) -> str:
    return f"{number / 1024**2:,.1f} MB" if number < 1024**3 else f"{number / 1024**3:,.1f} GB"


def reserve_of(total: int) -> int:
    """Return the reserve of a disk of `total` bytes."""
    given: int | None = settings.MIN_FREE_BYTES
    return min(DEFAULT_RESERVE, total // RESERVE_DIVISOR) if given is None else given


def measure(folder: str | Path, *, place: Place = Place.FILES, extra: int = 0) -> Shortage | None:
    """Return the shortage that the folder's disk would have after writing `extra` bytes, or None."""
    usage = shutil.disk_usage(folder)
    needed = reserve_of(usage.total) + extra
    return Shortage(place, str(folder), usage.free, needed) if usage.free < needed else None


def check_folder(folder: str | Path, *, extra: int = 0) -> None:
    """Raise DiskFull if writing `extra` bytes to this folder would use the reserve."""
    if shortage := measure(folder, extra=extra):
        raise DiskFull(shortage)


def find_shortage(place: Place | None = None) -> Shortage | None:
    """Return the shortage of one place (default: any), at most a second old. May query the database."""
    return _monitor.find(place)


def check_growth(extra: int) -> None:
    """Raise DiskFull if the database has too little space to grow by `extra` bytes."""
    check_space(Place.DATABASE)
    # SQLite writes rows twice: to the write-ahead log, and later to the database.
    if shortage := _measure_database(2 * extra):
        raise DiskFull(shortage)


def check_space(place: Place | None = None) -> None:
    """Raise DiskFull if a place (default: any) has too little space."""
    if shortage := find_shortage(place):
        raise DiskFull(shortage)


def free_folder_bytes(folder: str | Path) -> int | None:
    """Return how many bytes can be written to this folder without using the reserve.

    None if the folder does not exist.
    """
    try:
        usage = shutil.disk_usage(folder)
    except FileNotFoundError:
        return None
    return usage.free - reserve_of(usage.total)


def free_database_bytes() -> int | None:
    """Return how many bytes the database can grow without using the reserve. None for a database server."""
    folder = _database_folder()
    free = free_folder_bytes(folder) if folder else None
    return None if folder is None or free is None else free + _reusable_bytes(folder)


def find_low_disks() -> Iterator[Shortage]:
    """Yield the measured disks that are low. `needed` is the reserve, below which the disk is full."""
    folders = [(Place.FILES, Path(settings.UPLOADS_DIR)), (Place.FILES, Path(settings.EXPORTS_DIR))]
    if database := _database_folder():
        folders.append((Place.DATABASE, database))
    for place, folder in folders:
        usage = shutil.disk_usage(folder)
        free = usage.free + (_reusable_bytes(folder) if place is Place.DATABASE else 0)
        if free < LOW_FACTOR * reserve_of(usage.total):
            yield Shortage(place, str(folder), free, reserve_of(usage.total))


def note_error(error: BaseException | None) -> bool:
    """Return True if the error means that a disk is full, and remember it until a probe succeeds."""
    if not is_disk_full(error):
        return False
    if isinstance(error, DatabaseError):
        _monitor.note_failed_write()
    return True


def forget() -> None:
    """Clear all cached measurements and errors."""
    _monitor.forget()


@contextmanager
def skip_when_full() -> Iterator[None]:
    """Suppress errors of a full disk in an optional write, for example the last use of a key."""
    try:
        yield
    except DatabaseError as error:
        if not note_error(error):
            raise


def is_disk_full(error: BaseException | None) -> bool:
    """Return True for errors of the operating system, SQLite or PostgreSQL on a full disk, and for DiskFull."""
    while error is not None:
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}):
            return True
        name = str(getattr(error, "sqlite_errorname", ""))
        if name == "SQLITE_FULL" or (name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _is_database_disk_full()):
            return True
        if getattr(error, "sqlstate", None) == "53100" or (
            isinstance(error, DatabaseError) and "No space left on device" in str(error)
        ):
            return True
        error = error.__cause__
    return False


class _DiskMonitor:
    """The state of the disks as known to this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._measured_at = self._probed_at = -math.inf
        self._has_measured = self._write_failed = False
        self._short: dict[Place, Shortage] = {}

    def note_failed_write(self) -> None:
        self._write_failed = True
        self._probed_at, self._measured_at = time.monotonic(), -math.inf

    def find(self, place: Place | None) -> Shortage | None:
        # While another thread measures, return the previous result, if any.
        if time.monotonic() - self._measured_at >= MEASURE_SECONDS and self._lock.acquire(
            blocking=not self._has_measured
        ):
            try:
                self._short = {shortage.place: shortage for shortage in self._find_shortages()}
                self._measured_at, self._has_measured = time.monotonic(), True
            finally:
                self._lock.release()
        return self._short.get(place) if place else next(iter(self._short.values()), None)

    def _find_shortages(self) -> list[Shortage]:
        found = list(self._measure())
        return list(self._measure()) if found and truncate_write_ahead_log() else found

    def _measure(self) -> Iterator[Shortage]:
        for folder in (settings.UPLOADS_DIR, settings.EXPORTS_DIR, settings.FILE_UPLOAD_TEMP_DIR):
            if Path(folder).is_dir() and (shortage := measure(folder)):
                yield shortage
        database = _measure_database()
        if database is None and self._probe_database():
            where = _database_folder()
            database = Shortage(Place.DATABASE, str(where or ""), shutil.disk_usage(where).free if where else 0)
        if database:
            yield database

    def _probe_database(self) -> bool:
        """Probe the database if its disk cannot be measured, or an error reported a full disk."""
        if (self._write_failed or connection.vendor == "postgresql") and not connection.in_atomic_block:
            now = time.monotonic()
            if now - self._probed_at >= PROBE_SECONDS:
                self._probed_at = now
                self._write_failed = _probe(had_failed=self._write_failed)
        return self._write_failed


_monitor = _DiskMonitor()


def _measure_database(extra: int = 0) -> Shortage | None:
    folder = _database_folder()
    shortage = measure(folder, place=Place.DATABASE, extra=extra) if folder else None
    if folder and shortage and shortage.free + _reusable_bytes(folder) >= shortage.needed:
        return None
    return shortage


def _database_folder() -> Path | None:
    """Return the folder of the SQLite file, or None for an in-memory database or a database server."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or ":memory:" in name or "mode=memory" in name:
        return None
    folder = Path(name).parent
    return folder if folder.is_dir() else None


def _reusable_bytes(folder: Path) -> int:
    """Return the bytes of free pages. SQLite reuses them: its file does not shrink when rows are deleted.

    Return 0 if the disk has too little space for the write-ahead log, which every write needs.
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


def truncate_write_ahead_log() -> bool:
    """Truncate SQLite's write-ahead log, which keeps the size of its largest transaction. Return True if it shrank.

    It cannot shrink while another connection writes, or reads rows that are only in the log.
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


def _is_database_disk_full() -> bool:
    """Return True if the disk is full. Measured, because SQLite raises various errors on a full disk."""
    folder = _database_folder()
    return folder is not None and shutil.disk_usage(folder).free < PROBE_BYTES


def _probe(*, had_failed: bool) -> bool:
    """Write some bytes to the disk of the database. Return True if that fails because it is full."""
    try:
        if (folder := _database_folder()) is not None:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0" * PROBE_BYTES)
        elif connection.vendor == "postgresql":
            with transaction.atomic(), connection.cursor() as cursor:
                # The rows do not fit into work_mem, so the server writes a temporary file and deletes it.
                cursor.execute("SET LOCAL work_mem = '64kB'")
                cursor.execute("SELECT count(*) FROM generate_series(1, %s)", [_PROBE_ROWS])
        return False
    except (OSError, DatabaseError) as problem:
        connection.close_if_unusable_or_obsolete()
        # If the server stopped because its disk is full, other errors do not prove that there is space now.
        return is_disk_full(problem) or had_failed
