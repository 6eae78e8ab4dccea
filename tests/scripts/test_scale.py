"""The rows of the scale measurements are such as the program makes, and its lists answer over them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_lists_are_measured_over_filled_rollouts():
    sizes = ["--rollouts", "800", "--requests", "2", "--only", "of a collection"]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.measure_lists", *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "ServerMissing: " in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in {0, 1}, done.stderr  # 1 where a budget was missed, which is for `make test-scale` to tell
    assert (lines[0]["rollouts"] > 1100, lines[-1]["measured"]) == (True, "lists")
    assert {"api rollouts, of a collection", "page rollouts, of a collection"} <= {line["list"] for line in lines[1:-1]}
