"""Database connections: the options that SQLite and PostgreSQL need beyond the URL."""

import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=30000;",
}
POSTGRES = {
    # Without these, an unreachable host is noticed after 2 minutes when connecting, and after 15 minutes or never on an
    # open connection.
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(database: dict[str, Any], *, test_file: Path, idle_seconds: float) -> dict[str, Any]:
    """Return Django's database settings with defaults; options in the URL take precedence."""
    given = database.get("OPTIONS", {})
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # Django REST framework imports it if possible, and with it psycopg: 10 MB that SQLite does not need.
        sys.modules.setdefault("django.contrib.postgres", None)  # type: ignore[arg-type]
        return {**database, "OPTIONS": {**SQLITE, **given}, "TEST": {"NAME": str(test_file)}}
    # A worker suspended inside a transaction holds locks. If the server did not end the transaction, its rollouts would
    # stay claimed, and heartbeats of other workers would wait until their leases expire.
    guard = f"-c idle_in_transaction_session_timeout={int(idle_seconds * 1000)}"
    # PostgreSQL uses the last of several values, so options in the URL take precedence.
    options = f"{guard} {given.get('options', '')}".strip()
    return {**database, "ENGINE": "gymweb.postgresql", "OPTIONS": {**POSTGRES, **given, "options": options}}


def prepare_file(path: Path) -> None:
    """Let a new SQLite file shrink in steps (apps/rollouts/free_pages.py). Later, this needs a rewrite of the file."""
    # The process that uses the file reports errors.
    with suppress(OSError, sqlite3.Error):
        if path.stat().st_size == 0:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA auto_vacuum = INCREMENTAL")
                database.execute("VACUUM")
