"""A decorator that declares a function as a background job of workers.

The function does one unit of work and returns True if there was any. The setting WORKER_BACKGROUND_JOBS lists the jobs
to run. A listed function without the decorator runs every second.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from django.db.models import QuerySet
from django.utils.module_loading import import_string

Work = Callable[[], bool]
Thread = Literal[
    "alerts",
    "background_jobs",
    "checks",
    "datasets",
    "figures",
    "hub_pushes",
    "scans",
    "server_metrics",
    "traces",
    "tracking",
    "tracking_sends",
    "words",
]
"""The thread that runs a job. Jobs on one thread wait for each other, so long jobs have their own."""


class BackgroundJob(NamedTuple):
    """Options of a background job.

    `waiting` returns a queryset of rows with possible work: while it is empty, the job does not run. It must not depend
    on the current time: its SQL is compiled only once, and not run again while SQLite is unchanged. `every` is the time
    in seconds between two runs that found no work. `on_full_disk` lets a job run on a full disk; set it for jobs that
    free space or need almost none.
    """

    path: str
    work: Work
    thread: Thread = "background_jobs"
    waiting: Callable[[], QuerySet[Any]] | None = None
    every: float = 1.0
    on_full_disk: bool = False


_declared: dict[str, BackgroundJob] = {}


def background_job(
    *,
    thread: Thread = "background_jobs",
    waiting: Callable[[], QuerySet[Any]] | None = None,
    every: float = 1.0,
    on_full_disk: bool = False,
) -> Callable[[Work], Work]:
    """Declare the decorated function as a background job. See BackgroundJob for the options."""

    def declare(work: Work) -> Work:
        path = f"{work.__module__}.{work.__qualname__}"
        _declared[path] = BackgroundJob(path, work, thread, waiting, every, on_full_disk)
        return work

    return declare


def load_job(path: str) -> BackgroundJob:
    """Import the function with this path and return its declaration."""
    work: Work = import_string(path)
    return _declared.get(path) or BackgroundJob(path, work)
