"""Run the background jobs of all apps in the worker, next to the rollouts.

Each thread runs one job at a time (see `thread` in apps/accounts/job_declarations.py). One query a second finds the
jobs with work to do; SQLite is not queried again while it is unchanged.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection

from apps.accounts.disk_space import Place, find_shortage
from apps.accounts.job_declarations import BackgroundJob, Thread, load_job
from apps.accounts.outage_log import RetryLog
from apps.accounts.outages import drop_broken_connection
from apps.accounts.telemetry.spans import SILENT, current_tracer, mark_failed
from apps.environments.environment_health import worker_group
from apps.gym import process_exit
from apps.rollouts.database_version import read_version

POLL_SECONDS = 1.0
EARLY_SECONDS = 0.1
"""A job may run this much before it is due, so that jobs of equal intervals keep running together."""

InDatabase = Callable[..., Coroutine[Any, Any, Any]]
"""Run a function on the database thread of the worker."""


class BackgroundJobs:
    """The background jobs of a worker.

    `names` are import paths of functions declared with `background_job` (apps/accounts/job_declarations.py).
    """

    def __init__(self, names: Sequence[str], *, group: str, in_database: InDatabase) -> None:
        self._group = group
        self._in_database = in_database
        self._stopping = threading.Event()
        self._jobs = [load_job(name) for name in names]
        self._logs = {job.path: RetryLog(job.path, traceback=True) for job in self._jobs}
        self._poll_log = RetryLog("looking for background jobs")
        self._ran_at: defaultdict[str, float] = defaultdict(lambda: -float("inf"))
        self._query: tuple[str, tuple[Any, ...]] | None = None
        self._waits: dict[str, bool] = {}
        self._version: object = None  # of the database when `_waits` was read
        self._threads = {
            kind: ThreadPoolExecutor(1, f"rollouts-{kind}", initializer=self._prepare_thread)
            for kind in {job.thread for job in self._jobs}
        }
        self._due_by_thread: dict[Thread, dict[str, BackgroundJob]] = {kind: {} for kind in self._threads}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start due jobs until cancelled. Running jobs then continue until `leave` stops them."""
        while self._jobs:
            try:
                self._start(await self._in_database(self._due))
                self._poll_log.works()
            except Exception as problem:
                self._poll_log.failed(problem)
            await asyncio.sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Ask running jobs to stop at their next safe point."""
        self._stopping.set()
        for task in self._running.values():
            task.cancel()

    def close(self, *, wait: bool = False) -> None:
        for thread in self._threads.values():
            thread.shutdown(wait=wait)

    def _prepare_thread(self) -> None:
        """Initialize a job thread."""
        process_exit.obey(self._stopping)
        worker_group.set(self._group)
        own: Any = connection
        own.is_pooled = False  # Jobs run long: they must not use the connections of web requests.

    def _due(self) -> list[BackgroundJob]:
        now = time.monotonic()
        ready = [job for job in self._jobs if now - self._ran_at[job.path] >= job.every - EARLY_SECONDS]
        waits = self._waiting()
        return [job for job in ready if waits.get(job.path, True)]

    def _waiting(self) -> dict[str, bool]:
        """Return whether each job with a `waiting` query has rows to process."""
        asking = [job for job in self._jobs if job.waiting is not None]
        if not asking:
            return {}
        self._query = self._query or _compile(asking)
        version = read_version()
        if version is None or version != self._version:
            with connection.cursor() as cursor:
                cursor.execute(*self._query)
                self._waits = dict(zip([job.path for job in asking], map(bool, cursor.fetchone()), strict=True))
            self._version = version
        return self._waits

    def _start(self, due: list[BackgroundJob]) -> None:
        for job in due:
            self._due_by_thread[job.thread][job.path] = job
        for kind, jobs in self._due_by_thread.items():
            if jobs and (kind not in self._running or self._running[kind].done()):
                self._running[kind] = asyncio.create_task(self._run_jobs(jobs, self._threads[kind]))

    async def _run_jobs(self, jobs: dict[str, BackgroundJob], thread: ThreadPoolExecutor) -> None:
        """Run jobs round-robin until none has work left. Jobs that become due are added to `jobs` meanwhile."""
        loop = asyncio.get_running_loop()
        while jobs:
            for job in list(jobs.values()):
                self._ran_at[job.path] = time.monotonic()
                found = False
                try:
                    found = await loop.run_in_executor(thread, _run, job, len(jobs) > 1)
                    self._logs[job.path].works()
                except Exception as problem:
                    self._logs[job.path].failed(problem)
                if not found:
                    del jobs[job.path]


def _compile(jobs: list[BackgroundJob]) -> tuple[str, tuple[Any, ...]]:
    parts, given = [], ()
    for job in jobs:
        assert job.waiting is not None
        sql, params = job.waiting().order_by().query.exists().sql_with_params()
        parts.append(f"EXISTS ({sql})")
        given += params
    return f"SELECT {', '.join(parts)}", given


def _run(job: BackgroundJob, others_follow: bool) -> bool:
    """Run the job. Keep the connection for its further work or for other jobs: on SQLite, opening it takes long."""
    is_needed = False
    drop_broken_connection()
    try:
        found = (job.on_full_disk or find_shortage(Place.DATABASE) is None) and _work(job)
        is_needed = found or others_follow
        return found
    finally:
        if not is_needed or process_exit.is_leaving():
            connection.close()


def _work(job: BackgroundJob) -> bool:
    """Run the job, in a span if spans are sent. A job that found no work leaves none."""
    tracer = current_tracer()
    if tracer is None:
        return job.work()
    # Imported here, because the package is optional.
    from opentelemetry.trace import use_span

    span = tracer.start_span(f"job {job.path.rpartition('.')[2]}")
    with use_span(span, **SILENT):
        try:
            found = job.work()
        except Exception as problem:
            mark_failed(problem)
            span.end()
            raise
    if found:
        span.end()
    return found
