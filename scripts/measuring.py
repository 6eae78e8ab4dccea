"""Shared by the measuring scripts: separate databases and processes, and the load of the machine."""

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from scripts.servers import own_settings, postgres

MB = 1024**2
ALLOWED_GROWTH_MB = 150

Given = ParamSpec("Given")
Result = TypeVar("Result")


def say(measured: str, **figures: object) -> None:
    print(json.dumps({"measured": measured, **figures}), flush=True)


def machine_load() -> float:
    return round(os.getloadavg()[0], 1)


def is_busy() -> bool:
    """Return True if the machine has more running processes than cores, so that wall-clock times are unreliable."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def use_database(var: Path, **settings: str) -> dict[str, str]:
    """Set Django up on a database (SQLite in the folder unless the settings name another) and migrate it.

    Return the settings, which a server needs too.
    """
    given = own_settings(var, GYMWEB_LOG_LEVEL="WARNING", **settings)
    os.environ |= given
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    return given


def in_own_process(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Do the work in a new process with the same environment, to measure its memory separately."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


class Filled(NamedTuple):
    """The rows that scripts/fill_rollouts.py created, by id."""

    rollouts: int
    collections: list[int]
    large: int
    beside: int
    seconds: float


class Ground(NamedTuple):
    """A filled PostgreSQL, the pids of its server if known, and a folder."""

    var: Path
    settings: dict[str, str]
    servers: list[int]
    filled: Filled


def parse_sizes(description: str | None, **sizes: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=usual, help="default: %(default)s")
    return parser


def parse_ground(description: str | None, *, traced: float, **sizes: int) -> argparse.ArgumentParser:
    """Return a parser of the arguments of `filled_ground`, and of further sizes."""
    parser = parse_sizes(description, rollouts=1_000_000, **sizes)
    parser.add_argument("--traced", type=float, default=traced, help="the share of rollouts with traces")
    parser.add_argument("--database", default="", help="one of yours, that is empty or was filled before")
    return parser


@contextlib.contextmanager
def filled_ground(*, rollouts: int, traced: float, database: str = "") -> Iterator[Ground]:
    """Yield a filled PostgreSQL of its own, or the named database, which is filled if it is empty."""
    end_servers_when_stopped()
    with contextlib.ExitStack() as stack:
        server = None if database else stack.enter_context(postgres())
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymweb-measured-")))
        given = use_database(var, GYMWEB_DATABASE_URL=server.url if server else database)
        from scripts.fill_rollouts import fill_rollouts, find_filled

        filled = find_filled() or fill_rollouts(rollouts=rollouts, traced=traced)
        say("filled", rollouts=filled.rollouts, seconds=filled.seconds)
        yield Ground(var, given, [server.pid] if server else [], filled)


def end_servers_when_stopped() -> None:
    """Turn SIGTERM into an exception, which also stops the servers of this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
