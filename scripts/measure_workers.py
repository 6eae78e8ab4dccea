"""Measure the CPU of a rollout with one and with two real workers, on a PostgreSQL and a Redis of their own.

`python -m scripts.measure_workers [--seats 256] [--latency-ms 200] [--seconds 20] [--runs 3]` starts workers
(`manage.py rolloutworker`) for the reference work of scripts/bench.py, by turns: one worker, two with as many seats
each ("full"), and two that share the seats ("split"). One JSON object per run: rollouts per second, and CPU per rollout
of the workers and of PostgreSQL and Redis. The last object has the ratios of the medians to that of one worker.

A call of the model takes --latency-ms, so that the model limits the rate, not the processor.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.measuring import end_servers_when_stopped, machine_load, parse_sizes, say, use_database
from scripts.model_process import mock_model
from scripts.process_figures import cpu_seconds
from scripts.servers import postgres, redis

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 12.0
"""Seconds from the first end until the measurement: workers prepare their statements and fill their caches."""
FIRST_END_SECONDS = 60.0
MOST_PER_S = 4_000
"""Rollouts a second of two workers, at most: so many are planned."""


def measure(seats: Sequence[int], *, work: Any, seconds: float, servers: Sequence[int]) -> dict[str, Any]:
    """Run the reference work with one worker for each number of seats."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE rollouts_collection CASCADE")
    work.plan(round(MOST_PER_S * (seconds + WARM_UP)))
    with _workers(seats) as pids:
        began = time.monotonic()
        while not _ended():
            if time.monotonic() - began > FIRST_END_SECONDS:
                raise SystemExit(f"no rollout ended within {FIRST_END_SECONDS:.0f} s")
            time.sleep(0.1)
        time.sleep(WARM_UP)
        ended, used, beside, began = _ended(), cpu_seconds(*pids), cpu_seconds(*servers), time.monotonic()
        time.sleep(seconds)
        used, beside, wall = cpu_seconds(*pids) - used, cpu_seconds(*servers) - beside, time.monotonic() - began
        ended = _ended() - ended
    return {
        "seats": list(seats),
        "rollouts_per_s": round(ended / wall, 1),
        "workers_ms": round(used / ended * 1000, 3),
        "servers_ms": round(beside / ended * 1000, 3),
        "cpu_ms_per_rollout": round((used + beside) / ended * 1000, 3),
        "load": machine_load(),
    }


@contextlib.contextmanager
def _workers(seats: Sequence[int]) -> Iterator[list[int]]:
    processes = [
        subprocess.Popen([sys.executable, "manage.py", "rolloutworker", "--seats", str(number)], cwd=ROOT)
        for number in seats
    ]
    try:
        yield [one.pid for one in processes]
    finally:
        for one in processes:
            one.terminate()
        for one in processes:
            one.wait(timeout=60)


def _ended() -> int:
    from apps.rollouts.models import Rollout

    return Rollout.objects.filter(finished_at__isnull=False).count()


def main() -> None:
    parser = parse_sizes(__doc__, seats=256, seconds=20, runs=3)
    parser.add_argument("--latency-ms", type=float, default=200.0, help="of a model call; default: %(default)s")
    options = parser.parse_args()
    end_servers_when_stopped()
    with postgres() as database, redis() as cache, tempfile.TemporaryDirectory(prefix="gymweb-workers-") as var:
        addresses = {"GYMWEB_DATABASE_URL": database.url, "GYMWEB_REDIS_URL": cache.url}
        use_database(Path(var), GYMWEB_OUTBOUND_ALLOW="127.0.0.1", **addresses)
        from scripts.reference_work import EXPRESSION, ReferenceWork

        kinds = {
            "one": [options.seats],
            "full": [options.seats] * 2,
            "split": [options.seats // 2] * 2,
        }
        runs: dict[str, list[float]] = {kind: [] for kind in kinds}
        with mock_model("--latency-ms", options.latency_ms, *EXPRESSION) as port:
            work = ReferenceWork(port, over_http=False, concurrency=2 * options.seats)
            for _ in range(options.runs):
                for kind, seats in kinds.items():
                    figures = measure(seats, work=work, seconds=options.seconds, servers=[database.pid, cache.pid])
                    say(kind, **figures)
                    runs[kind].append(figures["cpu_ms_per_rollout"])
    middle = {kind: statistics.median(figures) for kind, figures in runs.items()}
    say("workers", full=round(middle["full"] / middle["one"], 3), split=round(middle["split"] / middle["one"], 3))


if __name__ == "__main__":
    main()
