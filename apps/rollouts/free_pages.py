"""Return free pages of the SQLite file to the disk. PostgreSQL does this itself (autovacuum)."""

from django.db import connection

from apps.accounts.disk_space import truncate_write_ahead_log
from apps.accounts.job_declarations import background_job

START_PAGES = 1_000
"""Fewer free pages are kept for new rows."""
STEP_PAGES = 1_000
"""Pages per transaction: a longer one would delay other writers."""
INCREMENTAL = 2

_is_shrinking: list[bool] = []


@background_job(thread="datasets", every=30.0, on_full_disk=True)
def return_free_pages() -> bool:
    """Background job: return some free pages to the disk. Return True if there are more."""
    if connection.vendor != "sqlite" or not is_incremental():
        return False
    free = count_free_pages()
    if free < (1 if _is_shrinking else START_PAGES):
        return False
    free_step()
    _is_shrinking[:] = [True] if free > STEP_PAGES else []
    if not _is_shrinking:
        truncate_write_ahead_log()
    return bool(_is_shrinking)


def is_incremental() -> bool:
    """Return True if the SQLite file can shrink in steps. Files of earlier versions need one full VACUUM for this."""
    return _read("PRAGMA auto_vacuum") == INCREMENTAL


def count_free_pages() -> int:
    return _read("PRAGMA freelist_count")


def free_step() -> None:
    with connection.cursor() as cursor:
        # `execute` would free a single page: SQLite frees one for each row, and these rows have no columns.
        cursor.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")


def _read(pragma: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(pragma)
        return int(cursor.fetchone()[0])
