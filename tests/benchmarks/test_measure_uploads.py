"""The measurements of uploads measure: small ones here, a million rows by `make test-scale`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def measure(*arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "scripts.measure_uploads", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr  # 1 where a budget was missed, which is for `make test-scale` to tell
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_rows_are_loaded_beside_a_collection_in_flat_memory():
    [seen] = measure("rows", "--rows", "5000", "--on", "sqlite")
    assert {name: seen[name] for name in ("rows", "state", "rollouts_failed", "worker_kept_its_lease")} == {
        "rows": 5000,
        "state": "ready",
        "rollouts_failed": 0,
        "worker_kept_its_lease": True,
    }
    assert seen["rollouts_meanwhile"] > 0
    assert seen["growth_mb"] < 150


@pytest.mark.slow
def test_the_speed_is_that_of_new_and_of_known_rows():
    assert [(seen["rows"], seen["count"]) for seen in measure("speed", "--rows", "2000")] == [
        ("new", 2000),
        ("unchanged", 2000),
    ]
