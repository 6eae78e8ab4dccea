"""Whether the tables are those of this code: asked when a process starts, and by /readyz."""

from functools import cache

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


@cache
def _known_migrations() -> frozenset[tuple[str, str]]:
    """Those of the code, by app and name. Read once: building their graph for each question would cost 30 ms."""
    return frozenset(MigrationLoader(None).disk_migrations)


def find_mismatch() -> str:
    """What is wrong and what to do about it, or nothing; one query. Raises DatabaseError."""
    known, applied = _known_migrations(), MigrationRecorder(connection).applied_migrations().keys()
    # Of our own apps: what others left behind in the same database is none of our business.
    labels = {label for label, _ in known}
    if others := sorted(name for label, name in applied - known if label in labels):
        return (
            f"the tables are of another version ({others[-1]} was applied): run that version, or restore a backup of "
            "this one; a database from before 0.2.0 cannot be upgraded, so start with a new one"
        )
    if waiting := len(known - applied):
        return f"{waiting} migration{' is' if waiting == 1 else 's are'} not applied: run manage.py migrate"
    return ""
