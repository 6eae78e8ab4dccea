"""The measurement of claims runs, small: its workers run the real code, and no limit is exceeded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_simulated_workers_share_the_rollouts_within_the_limits():
    command = [sys.executable, "-m", "scripts.measure_scaling", "--workers", "3", "--seats", "24", "--rate", "20"]
    done = subprocess.run([*command, "--seconds", "4"], cwd=ROOT, capture_output=True, text=True, check=False)
    if "ServerMissing: " in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    seen = json.loads(done.stdout)
    assert (seen["workers"], seen["seats_a_worker"], seen["limit"]) == (3, 8, 8)
    assert seen["claims_per_s"] > 0 and seen["rollouts_per_s"] > 0
    assert 0 < seen["most_at_once"] <= seen["limit"]
