"""Background jobs of all apps: one piece at a time, in a thread for each kind, beside the rollouts of a worker."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from django.db import connection
from django.utils.module_loading import import_string

from apps.accounts.disk_space import Place, find_shortage
from apps.accounts.outage_log import RetryLog
from apps.environments.environment_health import worker_group
from apps.gym import process_exit

IDLE_SECONDS = 1.0
CHECKS = frozenset({"apps.environments.environment_health.probe_due_environments"})
"""Background jobs that wait for others. They have a thread of their own: a server that hangs must hold up no upload."""
DATASETS = frozenset(
    {
        "apps.tasks.upload_jobs.load_queued_upload",
        "apps.tasks.version_metrics.measure_next_version",
        "apps.tasks.dataset_deletion.delete_next",
        "apps.rollouts.steering.collection_deletion.delete_next_collection",
    }
)
"""Background jobs that take minutes for a million tasks. They have their own thread: a cancellation must not wait."""
FIGURES = frozenset({"apps.rollouts.metrics.cached_figures.measure_wanted"})
"""Another thread: somebody looks at a page and waits, while an export takes minutes."""
WORDS = frozenset({"apps.rollouts.search.word_index.index_next_rollouts"})
"""Another thread: after a large collection they go on for minutes, chunk by chunk."""


ON_FULL_DISK = frozenset(
    {
        "apps.environments.environment_health.probe_due_environments",
        "apps.rollouts.steering.controls.sweep_cancelled",
        "apps.tasks.upload_cleanup.sweep_uploads",
        "apps.tasks.dataset_deletion.delete_next",
        "apps.rollouts.steering.collection_deletion.delete_next_collection",
        "apps.accounts.idempotent_requests.sweep_answers",
    }
)
"""Background jobs that free space, or take next to none. The others wait until the database has space."""


class BackgroundJobs:
    """The background jobs of a worker. Each name is the path of a function that does one piece, if there is one."""

    def __init__(self, names: Sequence[str], *, group: str) -> None:
        self._group = group
        self._leaving = threading.Event()
        kinds = {
            "background_jobs": [name for name in names if name not in CHECKS | DATASETS | FIGURES | WORDS],
            "checks": [name for name in names if name in CHECKS],
            "datasets": [name for name in names if name in DATASETS],
            "figures": [name for name in names if name in FIGURES],
            "words": [name for name in names if name in WORDS],
        }
        self._threads = [
            (ThreadPoolExecutor(1, f"rollouts-{kind}", initializer=self._begin), paths) for kind, paths in kinds.items()
        ]

    async def run(self) -> None:
        """Until cancelled; what is being done in a thread then ends by itself, see `leave`."""
        async with asyncio.TaskGroup() as kinds:
            for thread, paths in self._threads:
                kinds.create_task(self._do(paths, thread))

    def leave(self) -> None:
        """Ask what is being done to stop at its next safe place."""
        self._leaving.set()

    def close(self, *, wait: bool = False) -> None:
        for thread, _ in self._threads:
            thread.shutdown(wait=wait)

    def _begin(self) -> None:
        """In each thread, before its first piece."""
        process_exit.obey(self._leaving)
        worker_group.set(self._group)

    async def _do(self, paths: list[str], thread: ThreadPoolExecutor) -> None:
        pieces: list[Callable[[], bool]] = [_load_job(path) for path in paths]
        logs = [RetryLog(path, traceback=True) for path in paths]
        loop = asyncio.get_running_loop()
        while True:
            found = False
            for piece, log in zip(pieces, logs, strict=True):
                try:
                    found |= await loop.run_in_executor(thread, _with_connection, piece)
                    log.works()
                except Exception as problem:
                    log.failed(problem)
            if not found:
                await asyncio.sleep(IDLE_SECONDS)


def _load_job(path: str) -> Callable[[], bool]:
    work: Callable[[], bool] = import_string(path)
    if path in ON_FULL_DISK:
        return work

    def work_or_wait() -> bool:
        return find_shortage(Place.DATABASE) is None and work()

    return work_or_wait


def _with_connection(piece: Callable[[], bool]) -> bool:
    try:
        return piece()
    finally:
        connection.close()
