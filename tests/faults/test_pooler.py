"""The idle timeout that connections request, also through PgBouncer, set up as docs/operate/scale.md says."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scripts.servers import Postgres, free_port
from tests.deadlines import DEADLINE, wait_until

ROOT = Path(__file__).resolve().parents[2]
PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
DOCUMENTED = re.findall(r"`(ignore_startup_parameters = [\w,]+)`", (ROOT / "docs" / "operate" / "scale.md").read_text())


@contextlib.contextmanager
def pooler(folder: Path, database: Postgres, *lines: str) -> Iterator[str]:
    """The address of the same database through a pooler."""
    port, told = free_port(), psycopg.conninfo.conninfo_to_dict(database.url)
    settings = ["listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", "auth_type = any"]
    if os.getuid() == 0:
        settings.append("user = nobody")
    behind = f"host={told['host']} port={told['port']} user={told['user']} dbname={told['dbname']}"
    text = "\n".join(["[databases]", f"gymweb = {behind}", "[pgbouncer]", "pool_mode = session", *settings, *lines])
    path = folder / "pgbouncer.ini"
    path.write_text(text + "\n")
    path.chmod(0o644)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([str(PGBOUNCER), str(path)], stdout=log, stderr=log)
    try:
        wait_until(lambda: "process up" in (folder / "pgbouncer.log").read_text())
        yield f"postgres://gymweb@127.0.0.1:{port}/gymweb"
    finally:
        process.terminate()
        process.wait(DEADLINE)


def ask(folder: Path, address: str) -> str:
    """The guard of a connection that GymWeb opened there, or why it could not."""
    code = (
        "import django; django.setup(); from django.db import connection; cursor = connection.cursor();"
        "cursor.execute('SHOW idle_in_transaction_session_timeout'); print(cursor.fetchone()[0])"
    )
    given = {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_VAR": str(folder), "GYMWEB_DATABASE_URL": address}
    asked = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or asked.stderr


def test_postgres_guards_idle_transactions_as_long_as_the_url_does_not_say_otherwise(tmp_path, database):
    assert ask(tmp_path, database.url) == "15s"
    assert ask(tmp_path, f"{database.url}?options=-c%20statement_timeout%3D60000") == "15s"
    assert ask(tmp_path, f"{database.url}?options=-c%20idle_in_transaction_session_timeout%3D7s") == "7s"


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_a_pooler_that_is_told_to_ignore_our_options_lets_connections_through(tmp_path, database):
    [line] = DOCUMENTED
    with pooler(tmp_path, database, line) as address:
        assert ask(tmp_path, address) == "0"
    with pooler(tmp_path, database) as address:
        assert "unsupported startup parameter: options" in ask(tmp_path, address)
