"""Check whether the database schema matches the code, at process start and in /readyz."""

from collections.abc import Collection
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from django.apps import apps
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

Key = tuple[str, str]
"""App and name of a migration."""


@cache
def list_migrations() -> frozenset[Key]:
    """Return the migrations in the code, from the names of their files: importing them takes 3 MB."""
    return frozenset(
        (app.label, module.name)
        for app in apps.get_app_configs()
        for module in iter_modules([str(Path(app.path) / "migrations")])
        if not module.name.startswith("_")
    )


@cache
def list_replaced() -> frozenset[Key]:
    """Return the migrations of 0.2.0 that the first migrations of our apps replace."""
    packages = {label: import_module(f"{apps.get_app_config(label).name}.migrations") for label, _ in list_migrations()}
    return frozenset((label, name) for label, package in packages.items() for name in getattr(package, "REPLACED", ()))


def find_unknown(applied: Collection[Key]) -> str:
    """Return the name of an applied migration that this version does not have, or an empty string."""
    # Only our own apps: the database may have tables of others.
    labels = {label for label, _ in list_migrations()}
    return max((key[1] for key in set(applied) - list_migrations() - list_replaced() if key[0] in labels), default="")


def find_gap(applied: Collection[Key]) -> str:
    """Return why a database with these migrations cannot be upgraded, or an empty string."""
    labels = {label for label, _ in applied}
    if missing := sorted(key for key in list_replaced() - set(applied) if key[0] in labels):
        return (
            f"the database is older than 0.2.0 ({'.'.join(missing[0])} is not applied): migrate it with version 0.2.0 "
            "first. Databases from before 0.2.0 cannot be upgraded; start with a new one"
        )
    return ""


def find_mismatch() -> str:
    """Return a mismatch with its remedy, or an empty string. Runs one query. Raise DatabaseError."""
    applied = MigrationRecorder(connection).applied_migrations().keys()
    if unknown := find_unknown(applied):
        return (
            f"the database belongs to another version ({unknown} was applied): run that version, or restore a "
            "backup. Databases from before 0.2.0 cannot be upgraded; start with a new one"
        )
    if gap := find_gap(applied):
        return gap
    if waiting := len(list_migrations() - applied):
        return f"{waiting} migration{' is' if waiting == 1 else 's are'} not applied: run manage.py migrate"
    return ""
