"""What it costs to export a million rollouts that all have traces: rows a second, and memory.

`python scripts/measure_exports.py [--rollouts 1000000] [--traced 1.0]` fills a PostgreSQL (scripts/fill_rollouts.py)
and writes each export in a process of its own. One JSON object a line. The exit status is 1 where memory grew by
150 MB or more, or fewer than 5,000 rows a second were written; where the machine is busy, of the CPU of writer and
database, which take turns.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.fill_rollouts import fill_rollouts, find_filled, use_database  # noqa: E402 - found by the line above
from scripts.servers import cpu_seconds, postgres  # noqa: E402

MB = 1024**2
PAGE = os.sysconf("SC_PAGESIZE")
ALLOWED_GROWTH_MB = 150
ASKED_ROWS_PER_SECOND = 5_000
EXPORTS = ["trl_sft:jsonl", "trl_sft:parquet", "nemo_gym_rollouts:jsonl"]
ALL_TASKS: dict[str, Any] = {"splits": []}
EVERYTHING: dict[str, Any] = {**ALL_TASKS, "include_flagged": True, "include_truncated": True}
WARM_UP_ROWS = 2_000


class Memory:
    """The most that this process held since it began."""

    def __enter__(self) -> "Memory":
        self._before = self._most = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def growth_mb(self) -> float:
        return round((self._most - self._before) / MB, 1)

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self._most = max(self._most, self._now())

    def _now(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def write_one(format: str, encoding: str, collection: int, folder: Path) -> dict[str, Any]:
    """The figures of one export, written by this process. A small one before it has everything imported."""
    from apps.exports.export_jobs import write_export
    from apps.exports.export_orders import ExportOrder, queue_export
    from apps.gym.exporters.registry import FORMATS
    from apps.rollouts.models import Collection

    any_reward = {"min_reward": -1e9} if FORMATS[format].makes == "demonstrations" else {}
    planned = Collection.objects.get(pk=collection)
    # Tasks are written whatever came of attempts at them.
    everything = ALL_TASKS if FORMATS[format].makes == "tasks" else {**EVERYTHING, **any_reward}
    small = {**everything, "max_rows": WARM_UP_ROWS}
    warm_up = queue_export(ExportOrder(format=format, collection=planned, encoding=encoding, filters=small))
    write_export(export=warm_up, path=folder / "warm-up")
    export = queue_export(ExportOrder(format=format, collection=planned, encoding=encoding, filters=everything))
    with Memory() as memory:
        began, cpu = time.perf_counter(), time.process_time()
        written = write_export(export=export, path=folder / "export")
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert written.state == "ready", written.message
    return {
        "format": format,
        "encoding": encoding,
        "considered": written.considered,
        "rows": written.rows,
        "mb": round(written.bytes / MB),
        "seconds": round(seconds, 1),
        "writer_cpu_s": round(cpu, 1),
        "rows_per_s": round(written.rows / seconds),
        "growth_mb": memory.growth_mb,
    }


def measure_exports(*, database: str, server: int, var: Path, rollouts: int, traced: float, only: list[str]) -> bool:
    """Says whether all were within their budgets. `server` is the pid of the database, 0 for one that is not ours."""
    use_database(database, var)
    filled = find_filled() or fill_rollouts(rollouts=rollouts, traced=traced)
    within = True
    for one in only:
        before = cpu_seconds(server) if server else 0.0
        command = [sys.executable, __file__, "--one", one, "--collection", str(filled.large), "--database", database]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout)
        if server:
            figures["database_cpu_s"] = round(cpu_seconds(server) - before, 1)
        by_cpu = round(figures["rows"] / (figures["writer_cpu_s"] + figures.get("database_cpu_s", 0.0)))
        is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        speed = max(figures["rows_per_s"], by_cpu) if is_busy and server else figures["rows_per_s"]
        fine = speed >= ASKED_ROWS_PER_SECOND and figures["growth_mb"] < ALLOWED_GROWTH_MB
        within = within and fine
        load = round(os.getloadavg()[0], 1)
        print(json.dumps({**figures, "rows_per_cpu_s": by_cpu, "load": load, "within": fine}), flush=True)
    return within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--traced", type=float, default=1.0, help="the share of rollouts with traces")
    parser.add_argument("--database", default="", help="one of yours, that is empty or was filled before")
    parser.add_argument("--exports", nargs="+", default=EXPORTS, metavar="FORMAT:ENCODING")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--collection", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the database ends as well
    with contextlib.ExitStack() as stack:
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymweb-exports-")))
        if options.one:
            use_database(options.database, var)
            format, encoding = options.one.split(":")
            print(json.dumps(write_one(format, encoding, options.collection, var)))
            return
        server = 0
        if not options.database:
            own = stack.enter_context(postgres())
            options.database, server = own.url, own.pid
        within = measure_exports(
            database=options.database,
            server=server,
            var=var,
            rollouts=options.rollouts,
            traced=options.traced,
            only=options.exports,
        )
    print(json.dumps({"exports": "all", "within": within}))
    sys.exit(not within)


if __name__ == "__main__":
    main()
