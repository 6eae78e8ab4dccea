"""Work of the benchmark `sandbox.executions`: one-line programs, each in its own sandbox."""

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from apps.gym.sandbox.choosing import Choice, ChosenSandbox
from apps.gym.sandbox.protocol import SandboxMissing


def measure_executions(*, executions: int) -> dict[str, Any]:
    """Return executions per second, and the time of one at full concurrency; `load` is that of the whole machine."""
    processors = len(os.sched_getaffinity(0))
    at_once = 4 * processors
    sandbox = ChosenSandbox(Choice(at_once=at_once))
    try:
        sandbox.run("print(1)")
    except SandboxMissing as missing:
        return {"skipped": str(missing)}
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        outcomes = list(threads.map(lambda number: sandbox.run(f"print({number})"), range(executions)))
    seconds = time.perf_counter() - began
    wrong = sum(outcome.stdout != b"%d\n" % number for number, outcome in enumerate(outcomes))
    took = sorted(outcome.seconds * 1000 for outcome in outcomes)
    return {
        "executions": executions,
        "wrong": wrong,
        "processors": processors,
        "at_once": at_once,
        "per_second": round(executions / seconds, 1),
        "median_ms": round(statistics.median(took), 1),
        "p99_ms": round(took[int(len(took) * 0.99)], 1),
        "load": round(os.getloadavg()[0], 1),
    }
