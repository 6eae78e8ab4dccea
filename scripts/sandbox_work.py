"""The work of the benchmark `sandbox.executions`: programs of one line, each in a sandbox of its own."""

import os
import resource
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from apps.gym.sandbox.choosing import Choice, ChosenSandbox
from apps.gym.sandbox.protocol import SandboxMissing


def measure_executions(*, executions: int) -> dict[str, Any]:
    """How many a second, and what one takes on the clock and of the processors, while as many run at once as may."""
    processors = len(os.sched_getaffinity(0))
    at_once = 4 * processors
    sandbox = ChosenSandbox(Choice(at_once=at_once))
    try:
        sandbox.run("print(1)")
    except SandboxMissing as missing:
        return {"skipped": str(missing)}
    began, before = time.perf_counter(), _processor_seconds()
    with ThreadPoolExecutor(at_once) as threads:
        outcomes = list(threads.map(lambda number: sandbox.run(f"print({number})"), range(executions)))
    seconds, spent = time.perf_counter() - began, _processor_seconds() - before
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
        "cpu_ms_each": round(1000 * spent / executions, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def _processor_seconds() -> float:
    """Of this process and of all that it has waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
