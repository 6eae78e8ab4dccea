"""Databases for servers that tests start: the migrations take seconds, so they run once and their result is copied."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import django

from tests.gymweb.serving import ROOT


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
            for old in folder.glob("*.sqlite3*"):
                old.unlink()
            begun = made.with_suffix(".begun")
            _migrate(begun)
            begun.replace(made)
        shutil.copyfile(made, database)


def _migrate(database: Path) -> None:
    database.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as var:
        given = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
        given |= {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_VAR": var}
        given["GYMWEB_DATABASE_URL"] = f"sqlite:///{database}"
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, env=given, check=True)
