"""Databases for servers that tests start: the migrations take seconds, so they run once and their result is copied."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import django

from tests.gymweb.serving import ROOT

KEPT_SECONDS = 86_400


def lay_out(database: Path) -> None:
    """A new SQLite database with every migration done, as `manage.py migrate` makes it."""
    digest = hashlib.sha256(django.get_version().encode())
    for file in sorted(ROOT.glob("apps/*/migrations/*.py")):
        digest.update(file.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"gymweb-migrated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{digest.hexdigest()[:16]}.sqlite3"
    with (folder / "lock").open("w") as lock:
        # The processes of one run ask at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            # Younger ones may be of another checkout, whose tests run beside these.
            for old in folder.glob("*.sqlite3*"):
                if old.stat().st_mtime < time.time() - KEPT_SECONDS:
                    old.unlink()
            begun = made.with_suffix(".begun")
            _migrate(begun)
            begun.replace(made)
        shutil.copyfile(made, database)


def lay_out_for(environment: Mapping[str, str]) -> None:
    """The same for the database that these settings name; on another kind of database the migrations are run."""
    kind, _, path = environment["GYMWEB_DATABASE_URL"].partition(":///")
    if kind == "sqlite":
        lay_out(Path(path))
    else:
        _manage("migrate", environment)


def _migrate(database: Path) -> None:
    database.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as var:
        given = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
        given |= {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_VAR": var}
        given["GYMWEB_DATABASE_URL"] = f"sqlite:///{database}"
        _manage("migrate", given)


def _manage(command: str, environment: Mapping[str, str]) -> None:
    words = [sys.executable, "manage.py", command, "--verbosity", "0"]
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
