"""Check whether the database schema matches the code, at process start and in /readyz."""

from functools import cache
from pathlib import Path
from pkgutil import iter_modules

from django.apps import apps
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder


@cache
def _known_migrations() -> frozenset[tuple[str, str]]:
    """Return the migrations in the code by app and name, from the names of their files: importing them takes 3 MB."""
    return frozenset(
        (app.label, module.name)
        for app in apps.get_app_configs()
        for module in iter_modules([str(Path(app.path) / "migrations")])
        if not module.name.startswith("_")
    )


def find_mismatch() -> str:
    """Return a mismatch with its remedy, or an empty string. Runs one query. Raise DatabaseError."""
    known, applied = _known_migrations(), MigrationRecorder(connection).applied_migrations().keys()
    # Only our own apps: the database may have tables of others.
    labels = {label for label, _ in known}
    if others := sorted(name for label, name in applied - known if label in labels):
        return (
            f"the database belongs to another version ({others[-1]} was applied): run that version, or restore a "
            "backup. Databases from before 0.2.0 cannot be upgraded; start with a new one"
        )
    if waiting := len(known - applied):
        return f"{waiting} migration{' is' if waiting == 1 else 's are'} not applied: run manage.py migrate"
    return ""
