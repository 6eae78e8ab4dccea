"""Measure the least that many workers cost PostgreSQL: the claims and results of measure_scaling, with minimal code.

`python -m scripts.bare_workers [--workers 1 4 16 64] [--seats 256] [--rate 200] [--seconds 12]` runs workers of a few
lines on a PostgreSQL of its own. A worker claims a rollout for each of its seats, sleeps as long as the rollouts take,
and stores an event and the end of each. These are three prepared statements and two commits. There are no limits,
leases, polls, counters or indexes of lists. One JSON object per number of workers: rollouts per second and the CPU of
PostgreSQL per rollout.
"""

import argparse
import subprocess
import sys
import threading
import time

import psycopg

from scripts.measuring import end_servers_when_stopped, parse_sizes, say
from scripts.process_figures import cpu_seconds
from scripts.servers import postgres

PROCESSES = 2
WARM_UP = 12.0
_TABLES = """
    DROP TABLE IF EXISTS bare_rollout, bare_event;
    CREATE TABLE bare_rollout (id bigint PRIMARY KEY, status int, attempt int, worker int, reward double precision);
    CREATE INDEX bare_queue ON bare_rollout (id) WHERE status = 0;
    CREATE TABLE bare_event (rollout bigint, payload bytea)
"""
_CLAIM = """
    UPDATE bare_rollout SET status = 1, attempt = attempt + 1, worker = %s WHERE id = ANY(ARRAY(
        SELECT id FROM bare_rollout WHERE status = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, attempt
"""
_EVENTS = "INSERT INTO bare_event SELECT * FROM unnest(%s::bigint[], %s::bytea[])"
_ENDS = """
    UPDATE bare_rollout r SET status = 2, reward = v.reward
    FROM unnest(%s::bigint[], %s::int[], %s::float8[]) AS v(id, attempt, reward)
    WHERE r.id = v.id AND r.attempt = v.attempt AND r.worker = %s
"""
_PAYLOAD = b"x" * 300


def work(url: str, *, number: int, seats: int, latency: float, until: float) -> None:
    """Run one worker until a time of `time.time()`."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        time.sleep(latency * (number % 64) / 64)  # workers do not claim at the same moment
        while time.time() < until:
            began = time.monotonic()
            claimed = connection.execute(_CLAIM, [number, seats]).fetchall()
            time.sleep(max(0.0, latency - (time.monotonic() - began)))
            ids, attempts = [row[0] for row in claimed], [row[1] for row in claimed]
            with connection.transaction():
                connection.execute(_EVENTS, [ids, [_PAYLOAD] * len(ids)])
                connection.execute(_ENDS, [ids, attempts, [1.0] * len(ids), number])


def measure(url: str, workers: int, options: argparse.Namespace, *, server: int) -> None:
    rows = round(options.rate * (options.seconds + 3 * WARM_UP))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLES)
        connection.execute("INSERT INTO bare_rollout SELECT id, 0, 0 FROM generate_series(1, %s::int) id", [rows])
        connection.execute("ANALYZE bare_rollout")
        until = time.time() + WARM_UP + options.seconds + 2
        command = [sys.executable, "-m", "scripts.bare_workers", f"--seats={options.seats // workers}"]
        command += [f"--rate={options.rate / workers}", f"--until={until}", f"--url={url}"]
        shares = [range(workers)[first::PROCESSES] for first in range(PROCESSES)]
        running = [subprocess.Popen([*command, "--run", *map(str, share)]) for share in shares if share]
        time.sleep(WARM_UP)

        def ended() -> int:
            return int(connection.execute("SELECT COUNT(*) FROM bare_rollout WHERE status = 2").fetchall()[0][0])

        before, used, began = ended(), cpu_seconds(server), time.monotonic()
        time.sleep(options.seconds)
        # Not counted: the scan that counts the ended rollouts.
        used, wall = cpu_seconds(server) - used, time.monotonic() - began
        done = ended() - before
        for one in running:
            one.wait(timeout=60)
    say(
        "bare workers",
        workers=workers,
        seats_a_worker=options.seats // workers,
        rollouts_per_s=round(done / wall, 1),
        database_ms_per_rollout=round(used / done * 1000, 3),
    )


def main() -> None:
    parser = parse_sizes(__doc__, seats=256, seconds=12)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rate", type=float, default=200.0, help="rollouts per second; default: %(default)s")
    for inner, kind in (("--url", str), ("--until", float)):
        parser.add_argument(inner, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        given = {"seats": options.seats, "latency": options.seats / options.rate, "until": options.until}
        threads = [
            threading.Thread(target=work, args=[options.url], kwargs={"number": n, **given}) for n in options.run
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    end_servers_when_stopped()
    with postgres(options=["-c", "max_connections=400"]) as server:
        url = server.url.replace("postgres://", "postgresql://", 1)
        for workers in options.workers:
            measure(url, workers, options, server=server.pid)


if __name__ == "__main__":
    main()
