"""System checks of the database, the data folder and the secret key."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, NotSupportedError, OperationalError, connection, connections

from gymweb.folders import who_else_reads
from gymweb.migration_state import find_mismatch

SQLITE = (3, 37)
POSTGRES = 14


def check_sqlite(**kwargs: Any) -> list[CheckMessage]:
    if connection.vendor != "sqlite" or sqlite3.sqlite_version_info >= SQLITE:
        return []
    return [
        Error(
            f"SQLite {sqlite3.sqlite_version} is too old: GymWeb needs {SQLITE[0]}.{SQLITE[1]} or newer.",
            hint="Use a newer Python, or PostgreSQL with GYMWEB_DATABASE_URL.",
            id="gymweb.E001",
        )
    ]


def check_postgres(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Connects, so it is asked only where the database is: by `migrate`, and when a process of ours starts."""
    return [problem for alias in databases or () for problem in _check_server(connections[alias])]


def _check_server(server: Any) -> list[CheckMessage]:
    if server.vendor != "postgresql":
        return []
    try:
        server.ensure_connection()
        version = server.pg_version // 10_000
    except NotSupportedError as problem:  # Django's own lower bound
        version = str(problem)
    except OperationalError:
        return []  # Whoever needs the database will say so.
    if isinstance(version, int) and version >= POSTGRES:
        return []
    return [
        Error(
            f"PostgreSQL is too old: GymWeb needs {POSTGRES} or newer, and this is {version}.",
            hint="Upgrade the server that GYMWEB_DATABASE_URL names.",
            id="gymweb.E002",
        )
    ]


def check_tables(**kwargs: Any) -> list[CheckMessage]:
    """Asked when a process of ours starts, which would else end with a table that does not exist."""
    try:
        problem = find_mismatch()
    except DatabaseError:
        return []  # Whoever needs the database will say so.
    if not problem:
        return []
    what, _, remedy = problem.partition(": ")
    return [
        Error(
            f"GymWeb does not start on this database: {what}.",
            hint=f"{remedy[:1].upper()}{remedy[1:]}.",
            id="gymweb.E003",
        )
    ]


def check_secret_key(**kwargs: Any) -> list[CheckMessage]:
    if settings.SECRET_KEY_GIVEN or connection.vendor == "sqlite":
        return []
    return [
        Warning(
            "The secret key was generated on this machine. Processes on others have another one: their sessions do not "
            "hold here, and they cannot read the API keys of policy models.",
            hint="Give all processes the same GYMWEB_SECRET_KEY.",
            id="gymweb.W001",
        )
    ]


def check_folder(**kwargs: Any) -> list[CheckMessage]:
    folder = Path(settings.VAR_DIR)
    who = who_else_reads(folder)
    if not who:
        return []
    return [
        Warning(
            f"{folder} is open to {who}: tasks, rollouts and uploads in it may be read.",
            hint=f"chmod 0700 {folder}, or name another folder with GYMWEB_VAR.",
            id="gymweb.W002",
        )
    ]
