#!/usr/bin/env python
"""Benchmarks of the engine, one JSON object per line.

The reference work of the `engine.sqlite.*` and `engine.postgres.*` benchmarks: 3 policy-model calls over HTTP, 2 tool
calls, 1 verification, zero latency, 256 in flight, traces stored. `.inprocess` runs tools and verifier in the worker,
`.http` on a resource server; with `.tokens` every reply has 400 token IDs and logprobs, which are stored. The figure is
CPU per rollout of the worker process, the database and Redis. The mock model and the resource server are not counted,
because they represent other machines.

`index.*` indexes the words of the rollouts of the reference work; `index.delay.*` measures how long ended rollouts wait
for it while others run. `engine.live_loops` runs 4,096 rollouts with a model that takes 5 s per call in one process.
`engine.claim` plans 1,000,000 rollouts and measures claims of 64. `sandbox.executions` runs one-line programs, each in
a fresh sandbox. `calls` measures the CPU of small operations that every rollout or request repeats. `figures.postgres`
reads the figures of a collection of 1,000,000 rollouts. Figures are the median of several fresh processes, if several
run. PostgreSQL and Redis are started on private ports; a benchmark whose server is not installed is skipped with a
message.
"""

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.measuring import use_database  # noqa: E402 - found by the line above
from scripts.servers import Postgres, Redis, ServerMissing, postgres, redis  # noqa: E402

REFERENCE = [
    f"engine.{where}{tokens}"
    for where in ("sqlite.inprocess", "sqlite.http", "postgres.http")
    for tokens in ("", ".tokens")
]
LIMITS = {bench: bench.replace("engine.", "engine.limit.") for bench in REFERENCE}
"""The benchmark of the least work that each benchmark is compared with."""
BENCHES = [
    *REFERENCE,
    "engine.function_calls",
    "engine.live_loops",
    "engine.claim",
    "index.sqlite",
    "index.postgres",
    "index.delay.sqlite",
    "index.delay.postgres",
    "sandbox.executions",
    "calls",
]
ON_REQUEST = [*LIMITS.values(), "engine.claim.sqlite", "figures.postgres"]
"""Not run by default: too slow, or run by turns with another."""
MAX_RATIO = 2.5
FUNCTION_CALLS = 1_680
"""Function calls per rollout when this was last recorded. More than 5 % over it fails the check."""
BUDGETS: dict[str, dict[str, tuple[float, float]]] = {
    **{bench: {"ratio": (0.0, MAX_RATIO)} for bench in LIMITS},
    "engine.function_calls": {"calls_per_rollout": (0.0, 1.05 * FUNCTION_CALLS)},
    "engine.claim": {"claim_p99_ms": (0.0, 25.0), "plan_grew_mb": (0.0, 150.0)},
    "sandbox.executions": {"per_second": (100.0, math.inf), "wrong": (0, 0)},
    "index.sqlite": {"worker_ms_per_rollout": (0.0, 0.1), "database_ms_per_rollout": (0.0, 0.4)},
    "index.postgres": {"worker_ms_per_rollout": (0.0, 0.1), "database_ms_per_rollout": (0.0, 0.4)},
    **{
        f"index.delay.{database}": {"longest_wait_s": (0.0, 60.0), "indexed_share": (0.9, 1.0)}
        for database in ("sqlite", "postgres")
    },
    "engine.live_loops": {"grew_mb": (0.0, 60.0), "share": (0.95, 2.0)},
    "calls": {
        "text_stream_s": (0.0, 1.0),
        "arguments_stream_s": (0.0, 1.0),
        "adapter_us": (0.0, 20.0),
        "rate_limit_us": (0.0, 200.0),
        "redaction_us": (0.0, 5.0),
    },
}
"""The limits that `--hold` checks: minimum and maximum of figures."""


class Servers:
    """PostgreSQL and Redis for the benchmarks, started on first use."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._postgres: Postgres | None = None
        self._redis: Redis | None = None
        self._databases = 0

    def options(self, bench: str) -> list[str]:
        """Return the options of a benchmark process, with a new database. Raise ServerMissing."""
        if "postgres" not in bench and bench != "engine.claim":
            return []
        self._postgres = self._postgres or self._stack.enter_context(postgres())
        self._redis = self._redis or self._stack.enter_context(redis())
        url = self._postgres.create_database(f"bench{self._databases}")
        self._databases += 1
        pids = [self._postgres.pid, self._redis.pid]
        return ["--database", url, "--redis", self._redis.url, "--servers", *map(str, pids)]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run one benchmark in this process."""
    if options.benches[0] == "sandbox.executions":
        from scripts.sandbox_work import measure_executions

        return measure_executions(executions=options.executions)
    database = {"GYMWEB_DATABASE_URL": options.database} if options.database else {}
    use_database(Path(options.var), GYMWEB_REDIS_URL=options.redis, GYMWEB_OUTBOUND_ALLOW="127.0.0.1", **database)
    from scripts import call_work, figures_work, index_work, limit_work, queue_work, reference_work

    bench, rollouts, servers = options.benches[0], options.rollouts, options.servers
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "calls": call_work.measure_calls,
        "index.delay": lambda: index_work.measure_delay(rollouts=options.indexed),
        "index": lambda: index_work.measure_index(rollouts=rollouts, servers=servers),
        "engine.claim": lambda: queue_work.measure_claims(queued=options.queued),
        "figures.postgres": lambda: figures_work.measure_figures(rollouts=options.queued, servers=servers),
        "engine.function_calls": lambda: reference_work.measure_calls(rollouts=rollouts),
        "engine.live_loops": lambda: reference_work.measure_live_loops(loops=options.loops),
        "engine.limit": lambda: limit_work.measure_limit(bench, rollouts=rollouts, servers=servers),
        "engine": lambda: reference_work.measure_cpu(bench, rollouts=rollouts, servers=servers),
    }
    return next(work for prefix, work in works.items() if bench.startswith(prefix))()


def repeat(bench: str, options: argparse.Namespace, servers: Servers) -> dict[str, Any]:
    """Run a benchmark several times, by turns with its limit if it has one.

    Return the run with the median figure, the figures of all runs, and the median ratio to the limit. Raise
    ServerMissing.
    """
    figure = "cpu_ms_per_rollout"
    runs, limits = [], []
    for _ in range(options.runs if bench in REFERENCE else 1):
        runs.append(_run(bench, options, servers.options(bench)))
        if bench in LIMITS:
            limits.append(_run(LIMITS[bench], options, servers.options(LIMITS[bench]))[figure])
    if figure not in runs[0]:
        return runs[0]
    middle = statistics.median_low([run[figure] for run in runs])
    shown = next(run for run in runs if run[figure] == middle)
    if len(runs) > 1:
        shown["runs"] = [run[figure] for run in runs]
    if limits:
        shown["limits"] = limits
        shown["ratio"] = round(statistics.median([run[figure] / at for run, at in zip(runs, limits, strict=True)]), 2)
    return shown


def _run(bench: str, options: argparse.Namespace, told: list[str]) -> dict[str, Any]:
    sizes = [f"--{name}={getattr(options, name)}" for name in ("rollouts", "indexed", "executions", "loops", "queued")]
    with tempfile.TemporaryDirectory(prefix="gymweb-bench-") as var:
        command = [sys.executable, __file__, bench, "--once", "--var", var, *sizes, *told]
        shown: dict[str, Any] = json.loads(subprocess.check_output(command).splitlines()[-1])
    return shown


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "benches",
        nargs="*",
        help=f"of {', '.join([*BENCHES, *ON_REQUEST])}; a prefix names several; default: those before {ON_REQUEST[0]}",
    )
    parser.add_argument("--rollouts", type=int, default=2560, help="of the reference work; a multiple of 128")
    parser.add_argument("--runs", type=int, default=5, help="fresh processes of each benchmark of the reference work")
    parser.add_argument("--indexed", type=int, default=25_600, help="rollouts of index.delay; a multiple of 128")
    parser.add_argument("--loops", type=int, default=4096)
    parser.add_argument("--executions", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--hold", action="store_true", help="exit with 1 where a budget was missed")
    for inner in ("--var", "--database", "--redis"):
        parser.add_argument(inner, default="", help=argparse.SUPPRESS)
    parser.add_argument("--servers", type=int, nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(prefixes: list[str]) -> Iterator[str]:
    known = [*BENCHES, *ON_REQUEST]
    for prefix in prefixes or [""]:
        found = [prefix] if prefix in known else [bench for bench in BENCHES if bench.startswith(prefix)]
        if not found:
            raise SystemExit(f"there is no benchmark {prefix}: {', '.join(known)}")
        yield from found


def main() -> None:
    options = _parse()
    if options.once:
        print(json.dumps(measure(options)), flush=True)
        return
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        missed = False
        for bench in _chosen(options.benches):
            try:
                figures = repeat(bench, options, servers)
            except ServerMissing as missing:
                figures = {"skipped": str(missing)}
            budgets = BUDGETS.get(bench, {}) if options.hold and "skipped" not in figures else {}
            over = [name for name, (least, most) in budgets.items() if not least <= figures[name] <= most]
            missed = missed or bool(over) or not figures.get("within", True)
            print(json.dumps({"bench": bench, **figures, **({"missed": over} if over else {})}), flush=True)
    sys.exit(options.hold and missed)


if __name__ == "__main__":
    main()
