"""Measure reading the figures of a large collection: rewards, components, tools, groups, a comparison."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection

from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.page_figures import scatter_rewards
from apps.rollouts.metrics.task_profiles import profile_tasks
from apps.rollouts.models import Collection
from scripts.fill_rollouts import REPEATS, fill_rollouts
from scripts.measuring import is_busy, machine_load
from scripts.process_figures import cpu_seconds, run_milliseconds

BUDGET_SECONDS = 5.0
BUDGETS = {"measure": 0.3}
"""Other budgets: the figures of the whole collection come from counted blocks."""


def measure_figures(*, rollouts: int, servers: Sequence[int]) -> dict[str, Any]:
    """Return the seconds to read each kind of figures of a collection of `rollouts` rollouts, eight per task."""
    filled = fill_rollouts(rollouts=rollouts, traced=0.0)
    one, other = (Collection.objects.get(pk=pk) for pk in (filled.large, filled.beside))
    reads: dict[str, Callable[[], object]] = {
        "measure": lambda: measure_collection(one),
        "by_split": lambda: break_down(one, "split"),
        "by_tag": lambda: break_down(one, "tag"),
        "by_version": lambda: break_down(one, "model_version"),
        "profile_page": lambda: profile_tasks(one, after=one.total // REPEATS // 2),
        "profile_never": lambda: profile_tasks(one, bucket="never"),
        "scatter": lambda: scatter_rewards(one),
        "contrast": lambda: contrast_collections(one, other),
    }
    seconds, cpu = {}, {}
    for name, read in reads.items():
        seconds[name], cpu[name] = _seconds(read, servers)
    judged_by, judging = ("cpu", cpu) if is_busy() else ("clock", seconds)
    return {
        "rollouts": one.total,
        "tasks": one.total // REPEATS,
        **{f"{name}_s": took for name, took in seconds.items()},
        "cpu_s": cpu,
        "judged_by": judged_by,
        "budget_s": BUDGET_SECONDS,
        "budgets_s": BUDGETS,
        "within": all(took < BUDGETS.get(name, BUDGET_SECONDS) for name, took in judging.items()),
        "load": machine_load(),
    }


def _seconds(read: Callable[[], object], servers: Sequence[int]) -> tuple[float, float]:
    """Return wall-clock seconds, and their minimum on an idle machine.

    The minimum is the CPU of this process and its server process, or all CPU divided by the cores if PostgreSQL uses
    several processes. Returns the better of two runs, because the first may read from disk.
    """
    connection.ensure_connection()
    pair = [os.getpid(), connection.connection.info.backend_pid]
    took = []
    for _ in range(2):
        began, alone = time.perf_counter(), run_milliseconds(pair) / 1000
        before = time.process_time() + cpu_seconds(*servers)
        read()
        spent = time.process_time() + cpu_seconds(*servers) - before
        least = max(run_milliseconds(pair) / 1000 - alone, spent / (os.cpu_count() or 1))
        took.append((time.perf_counter() - began, least))
    wall, cpu = min(took)
    return round(wall, 2), round(cpu, 2)
