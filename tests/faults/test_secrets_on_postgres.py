"""The corpus of secrets on PostgreSQL, whatever database the suite itself runs on: JSON columns and COPY differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from scripts.servers import Postgres

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(connection.vendor == "postgresql", reason="the suite itself runs on PostgreSQL")
def test_no_secret_of_the_corpus_stays_on_postgresql(database: Postgres, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--create-db"]
    files = ["tests/exports/test_secret_corpus.py", "tests/rollouts/test_redaction.py"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GYMWEB_"))},
        "GYMWEB_DATABASE_URL": database.create_database("secrets"),
        "GYMWEB_VAR": str(tmp_path),
    }
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert (" passed" in done.stdout, "skipped" in done.stdout) == (True, False)
