"""An upload whose process is killed in the middle: nothing of it is ever visible, and the sweep removes it."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.deadlines import DEADLINE
from tests.migrated import lay_out

ROOT = Path(__file__).resolve().parents[2]
LINE = b'{"responses_create_params": {"input": "What is 2 + 2?"}, "expected_answer": "4"}\n'
COUNT = "SELECT (SELECT count(*) FROM tasks_task), (SELECT count(*) FROM tasks_datasetversion WHERE state = 'ready')"


def test_a_killed_upload_leaves_nothing_behind(tmp_path):
    environment = {
        **os.environ,
        "GYMWEB_VAR": str(tmp_path),
        "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/gymweb.sqlite3",
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
    }
    manage = [sys.executable, "manage.py"]

    def counts() -> tuple[int, int]:
        with closing(sqlite3.connect(tmp_path / "gymweb.sqlite3", timeout=DEADLINE)) as database:
            return database.execute(COUNT).fetchone()

    def run(*arguments: str) -> str:
        done = subprocess.run([*manage, *arguments], cwd=ROOT, env=environment, capture_output=True, check=True)
        return done.stdout.decode().strip()

    lay_out(tmp_path / "gymweb.sqlite3")
    upload = [*manage, "upload_tasks", "-", "--dataset", "sums", "--environment", "exact_match"]
    with subprocess.Popen(upload, cwd=ROOT, env=environment, stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(LINE * 10_000)
        process.stdin.flush()
        end = time.monotonic() + DEADLINE
        while counts()[0] < 2_000:
            assert time.monotonic() < end, "no chunk was written"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    tasks, ready = counts()
    assert (tasks >= 2_000, ready) == (True, 0)

    with closing(sqlite3.connect(tmp_path / "gymweb.sqlite3")) as database:
        database.execute("UPDATE tasks_upload SET touched_at = '2001-01-01'")
        database.commit()
    sweep = "from apps.tasks.upload_cleanup import sweep_uploads; print(sweep_uploads(), sweep_uploads())"
    assert run("shell", "--verbosity", "0", "-c", sweep) == "True False"
    with closing(sqlite3.connect(tmp_path / "gymweb.sqlite3")) as database:
        assert database.execute("SELECT state, version_id FROM tasks_upload").fetchall() == [("failed", None)]
        assert database.execute("SELECT count(*) FROM tasks_datasetversion").fetchone() == (0,)
    assert counts() == (0, 0)
