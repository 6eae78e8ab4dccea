"""Work of the benchmarks `index.*`: index the rollouts of the reference work, on the database of Django's settings."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

from django.db import connection
from django.db.models import Min
from django.utils import timezone

from apps.rollouts import row_statements
from apps.rollouts.models import Rollout, RolloutWords, UnindexedRollout
from apps.rollouts.search.word_index import index_all, mark_unindexed
from scripts.model_process import mock_model
from scripts.process_figures import cpu_seconds
from scripts.reference_work import EXPRESSION, SEATS, ReferenceWork

LOOK_SECONDS = 0.5


def measure_index(*, rollouts: int, servers: Sequence[int]) -> dict[str, Any]:
    """Return the CPU per rollout indexed, of the worker and of the database. `servers` are the database's pids.

    SQLite runs in the worker's process, so the CPU of its statements is taken as that of the database.
    """
    with mock_model(*EXPRESSION) as port:
        ReferenceWork(port, over_http=False).run(rollouts, seats=SEATS)
    mark_unindexed(Rollout.objects.all())
    statements = _StatementClock()
    before = cpu_seconds(*servers)
    cpu, wall = time.process_time(), time.perf_counter()
    with ExitStack() as stack:
        if connection.vendor == "sqlite":
            stack.enter_context(connection.execute_wrapper(statements))
            write_rows = partial(statements, row_statements._execute)
            stack.enter_context(mock.patch.object(row_statements, "_execute", write_rows))
        for _ in index_all():
            pass
    used, wall = time.process_time() - cpu, time.perf_counter() - wall
    database = statements.seconds + cpu_seconds(*servers) - before
    done = RolloutWords.objects.values("rollout").distinct().count()
    if (done, UnindexedRollout.objects.count()) != (rollouts, 0):
        raise SystemExit(f"the work was not done: {done} of {rollouts}")
    return {
        "worker_ms_per_rollout": round((used - statements.seconds) / rollouts * 1000, 3),
        "database_ms_per_rollout": round(database / rollouts * 1000, 3),
        "rollouts_per_s": round(rollouts / wall, 1),
        "rollouts": rollouts,
    }


def measure_delay(*, rollouts: int) -> dict[str, Any]:
    """Return how long ended rollouts waited for the index, at most, while a worker with full seats ran them.

    `indexed_share` is the share of rollouts that were indexed when the last one ended.
    """
    waiting: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            first = UnindexedRollout.objects.aggregate(first=Min("rollout__finished_at"))["first"]
            waiting.append((timezone.now() - first).total_seconds() if first else 0.0)
        connection.close()

    watching = threading.Thread(target=watch)
    with mock_model(*EXPRESSION) as port:
        work = ReferenceWork(port, over_http=False)
        watching.start()
        try:
            _, wall = work.run(rollouts, seats=SEATS)
            left = UnindexedRollout.objects.count()
            for _ in index_all():
                pass
        finally:
            over.set()
            watching.join()
    return {
        "longest_wait_s": round(max(waiting), 1),
        "indexed_share": round(1 - left / rollouts, 3),
        "rollouts": rollouts,
        "rollouts_per_s": round(rollouts / wall, 1),
    }


class _StatementClock:
    """Adds up the CPU that this thread spends in statements."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, execute: Callable[..., Any], *args: Any) -> Any:
        began = time.thread_time()
        try:
            return execute(*args)
        finally:
            self.seconds += time.thread_time() - began
