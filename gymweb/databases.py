"""How GymWeb connects to its database: what SQLite and PostgreSQL need beyond the address."""

from pathlib import Path
from typing import Any

SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=30000;",
}
POSTGRES = {
    # Without these a machine that vanished (power, cable, firewall) is noticed after 2 minutes by whoever connects, and
    # after a quarter of an hour, or never, by whoever is connected.
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(database: dict[str, Any], *, test_file: Path, idle_seconds: float) -> dict[str, Any]:
    """Django's description of the database with our options; what its URL says wins over them."""
    given = database.get("OPTIONS", {})
    if database["ENGINE"] == "django.db.backends.sqlite3":
        return {**database, "OPTIONS": {**SQLITE, **given}, "TEST": {"NAME": str(test_file)}}
    # A worker that is stopped amid a transaction keeps its locks. Unless the server ends that transaction, nobody can
    # take over its rollouts, and the heartbeats of all other workers wait behind it until their leases are gone too.
    guard = f"-c idle_in_transaction_session_timeout={int(idle_seconds * 1000)}"
    # The server takes the last of several values, so one that the URL gives wins.
    options = f"{guard} {given.get('options', '')}".strip()
    return {**database, "OPTIONS": {**POSTGRES, **given, "options": options}}
