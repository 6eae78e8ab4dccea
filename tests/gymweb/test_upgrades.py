"""A backup of version 0.2.0 is restored and upgraded: rows and traces stay, and the tables are those of a new database.

kept/make_kept_backups.py made the backups.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scripts.servers import Postgres, ServerMissing, own_settings, postgres
from tests.deadlines import DEADLINE
from tests.gymweb.kept.make_kept_backups import READ
from tests.gymweb.serving import ROOT
from tests.migrated import lay_out_for

KEPT = Path(__file__).parent / "kept"
UNUSED_FUNCTIONS = re.compile(
    r"CREATE FUNCTION public\.(rollouts_reserved_elsewhere|rollouts_reserve\([^)]*room integer\)).*?\$\$;", re.DOTALL
)
"""Functions that 0.2.0 kept for workers of earlier commits. An upgrade leaves them."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def server(kind: str) -> Iterator[Postgres | None]:
    if kind == "sqlite":
        yield None
        return
    try:
        with postgres() as started:
            yield started
    except ServerMissing as missing:
        pytest.skip(str(missing))


def make_settings(server: Postgres | None, var: Path) -> dict[str, str]:
    """Return the settings of an installation with an empty database."""
    var.mkdir(mode=0o700)
    return own_settings(var, **({"GYMWEB_DATABASE_URL": server.create_database(var.name)} if server else {}))


def run(settings: dict[str, str], *words: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_schema(settings: dict[str, str]) -> list[str]:
    """Return the statements that create the tables, without the order of columns."""
    url = settings["GYMWEB_DATABASE_URL"]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            statements = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return sorted(", ".join(sorted(statement.split(", "))) for (statement,) in statements)
    dumped = subprocess.check_output(["pg_dump", "--schema-only", "--no-owner", f"--dbname={url}"], text=True)
    dumped = re.sub(r"^(--|\\(un)?restrict ).*$", "", UNUSED_FUNCTIONS.sub("", dumped), flags=re.MULTILINE)
    # Restored conditions have the same casts in other places.
    statements = re.sub(r"::(character varying|text)(\[\])?|[()]", "", dumped).split(";\n")
    return sorted(filter(None, map(str.strip, statements)))


def test_a_backup_of_0_2_0_is_restored_and_upgraded(kind: str, server: Postgres | None, tmp_path: Path) -> None:
    with tarfile.open(KEPT / f"{kind}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / "contents.json").read_text())
    upgraded, fresh = make_settings(server, tmp_path / "upgraded"), make_settings(server, tmp_path / "fresh")
    run(upgraded, "manage.py", "restore", tmp_path / "backups")
    found = json.loads(run(upgraded, "-c", READ))
    assert found["mismatch"] == ""
    assert found["trace"] == expected["trace"] != []
    assert {table: found["rows"].get(table) for table in expected["rows"]} == expected["rows"]
    lay_out_for({**os.environ, **fresh})
    assert read_schema(upgraded) == read_schema(fresh)
