"""The benchmarks run, small: their figures are only worth something while the work behind them is done in full."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gym.sandbox.needing import needs_sandbox

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def bench(*arguments):
    """The figures of one benchmark."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    command = [sys.executable, "scripts/bench.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_cpu_is_counted_over_work_that_was_done_with_all_its_tokens_kept():
    figures = bench("engine.sqlite.http.tokens", "--rollouts", 128, "--runs", 2)
    assert figures["bench"] == "engine.sqlite.http.tokens"
    assert figures["rollouts"] == 128
    assert figures["events_stored"] == 8 * (128 + 3 * 128)
    assert figures["tokens_stored"] == 3 * 400 * (128 + 3 * 128)
    assert figures["cpu_ms_per_rollout"] == pytest.approx(figures["worker_ms"] + figures["servers_ms"], abs=0.002)
    assert len(figures["runs"]) == 2
    assert figures["cpu_ms_per_rollout"] == min(figures["runs"])


def test_every_claim_from_a_long_queue_takes_what_there_are_seats_for():
    figures = bench("engine.claim.sqlite", "--queued", 16_000)
    assert (figures["queued"], figures["collections"], figures["claims"]) == (16_000, 8, 105)
    assert 0 < figures["claim_p50_ms"] <= figures["claim_p99_ms"] <= figures["claim_max_ms"]


@needs_sandbox
def test_every_execution_is_counted_and_gave_what_it_should():
    figures = bench("sandbox.executions", "--executions", 40)
    assert (figures["executions"], figures["wrong"]) == (40, 0)
    assert 0 < figures["median_ms"] <= figures["p99_ms"]
    assert figures["per_second"] > 0


def test_calls_are_measured():
    figures = bench("calls")
    assert (figures["chunks"], figures["calls"]) == (200_000, 5_000)
    measured = (
        "text_stream_s",
        "arguments_stream_s",
        "adapter_us",
        "rate_limit_us",
        "redaction_us",
        "http_us",
        "aiohttp_us",
    )
    assert min(figures[name] for name in measured) > 0


def test_an_unknown_benchmark_is_refused():
    done = subprocess.run(
        [sys.executable, "scripts/bench.py", "engine.mysql"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "there is no benchmark engine.mysql" in done.stderr
