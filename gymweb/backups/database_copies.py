"""Copy the database while it is in use, and replace it with a copy. SQLite's backup API, or pg_dump and pg_restore."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from django.apps import apps
from django.db import connection
from psycopg import pq
from psycopg.conninfo import make_conninfo

from gymweb.backups.backup_manifests import BackupError, copy_hashed

Query = Callable[[str], list[tuple[Any, ...]]]
"""Runs one SELECT."""
T = TypeVar("T")


def copy_database(target: Path, read: Callable[[Query], T]) -> T:
    """Copy the database to a new private file. Return the result of `read`, which can query exactly the copied rows.

    Writers continue meanwhile. Raise BackupError.
    """
    target.unlink(missing_ok=True)
    target.touch(mode=0o600)
    result = _copy_sqlite(target, read) if connection.vendor == "sqlite" else _dump_postgres(target, read)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    return result


def check_copy(copy: Path, vendor: str) -> None:
    """Raise BackupError if the copy of a database cannot be read."""
    if vendor == "postgresql":
        _run("pg_restore", "--list", str(copy))
        return
    with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        try:
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            found = str(problem)
    if found != "ok":
        raise BackupError(f"{copy} is a damaged database: {found}. Use another backup.")


def replace_database(copy: Path) -> None:
    """Replace the database of this installation with the copy. Raise BackupError if processes use it."""
    if connection.vendor == "sqlite":
        _replace_sqlite(copy)
    else:
        _restore_postgres(copy)
    connection.close()


def run_query(sql: str) -> list[tuple[Any, ...]]:
    """Run one SELECT on the database of this installation."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def database_bytes() -> int:
    if connection.vendor == "sqlite":
        return int(run_query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")[0][0])
    return int(run_query("SELECT pg_database_size(current_database())")[0][0])


def _copy_sqlite(target: Path, read: Callable[[Query], T]) -> T:
    with closing(sqlite3.connect(_sqlite_file())) as source, closing(sqlite3.connect(target)) as copy:
        # All pages in one step: otherwise every write of another process starts the copy again.
        source.backup(copy)
        # A single file, without a write-ahead log.
        copy.execute("PRAGMA journal_mode = DELETE")
        return read(lambda sql: copy.execute(sql).fetchall())


def _dump_postgres(target: Path, read: Callable[[Query], T]) -> T:
    with closing(connection.copy()) as own, own.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 0")
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        snapshot = cursor.fetchone()[0]

        def query(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return list(cursor.fetchall())

        result = read(query)
        _run("pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}", *_server_arguments())
        return result


def _sqlite_file() -> Path:
    name = str(connection.settings_dict["NAME"])
    if ":memory:" in name or "mode=memory" in name:
        raise BackupError("The database is in memory. Set GYMWEB_DATABASE_URL to a file.")
    return Path(name)


def _replace_sqlite(copy: Path) -> None:
    path = _sqlite_file()
    connection.close()
    if path.exists():
        with closing(sqlite3.connect(path, timeout=1)) as old:
            try:
                # SQLite refuses this while another connection has the file open.
                old.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as problem:
                raise BackupError(f"Another process uses {path} ({problem}). Stop all processes first.") from None
            except sqlite3.DatabaseError:
                pass  # A damaged database is replaced.
    fresh = path.with_name(f"{path.name}.restoring")
    copy_hashed(copy, fresh)
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.replace(path)


def _restore_postgres(copy: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        if others := cursor.fetchone()[0]:
            raise BackupError(f"The database has {others} other connections. Stop all processes first.")
        prefixes = ("django_", *{f"{model._meta.app_label}_" for model in apps.get_models()})
        tables = [name for name in connection.introspection.table_names() if name.startswith(prefixes)]
        if tables:
            # pg_restore drops only tables of the backup, which fails if foreign keys of newer tables refer to them.
            cursor.execute(f"DROP TABLE {', '.join(map(connection.ops.quote_name, tables))} CASCADE")
        # Newer functions would also stay, and the migrations that create them would fail.
        cursor.execute(
            "SELECT oid::regprocedure::text FROM pg_proc"
            " WHERE pronamespace = current_schema()::regnamespace AND proname::text ^@ ANY(%s)",
            [list(prefixes)],
        )
        if functions := [name for (name,) in cursor.fetchall()]:
            cursor.execute(f"DROP FUNCTION {', '.join(functions)} CASCADE")
    connection.close()
    options = ("--clean", "--if-exists", "--no-owner", "--no-privileges", "--no-comments", "--single-transaction")
    try:
        _run("pg_restore", *options, *_server_arguments(), str(copy))
    except BackupError as problem:
        raise BackupError(f"{problem}\nThe database is empty now. Solve the problem, then restore again.") from None


def _server_arguments() -> list[str]:
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - {"password", "options"}
    given = {name: value for name, value in connection.get_connection_params().items() if name in known}
    return [f"--dbname={make_conninfo(**given)}", "--no-password"]


def _run(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL. Raise BackupError with its message."""
    found = shutil.which(program)
    if found is None:
        raise BackupError(f"{program} is not installed. Install the client programs of PostgreSQL.")
    # The password must not be in the arguments, which all users of the machine can read.
    password = str(connection.settings_dict.get("PASSWORD") or "")
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    done = subprocess.run(  # noqa: S603
        [found, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        hint = ""
        if "server version mismatch" in done.stderr:
            hint = " Install client programs at least as new as the server."
        raise BackupError(f"{program} failed: {done.stderr.strip()[-2000:]}{hint}")
