#!/usr/bin/env python
"""Benchmarks of the engine, one JSON object a line.

The reference work of the `engine.sqlite.*` and `engine.postgres.*` benchmarks: 3 policy-model calls over HTTP, 2 tool
calls, 1 verification, zero latency, 256 in flight, traces stored. `.inprocess` runs tools and verifier in the worker,
`.http` on a resource server; with `.tokens` every reply has 400 token ids and logprobs, which are kept. What counts is
CPU a rollout: of the worker's process and of the database and Redis. The model's and the resource server's own is not
counted, since they stand for somebody else's machines.

`engine.live_loops` holds 4,096 rollouts of a model that takes 5 s a call in one process. `engine.claim` plans 1,000,000
rollouts and measures claims of 64 from them. `sandbox.executions` runs programs of one line, each in a fresh sandbox.
`calls` measures the CPU of small operations that every rollout or request repeats.
`figures.*` reads the figures of a collection of 1,000,000 rollouts.
Every figure is the median of several fresh processes, where several run.
PostgreSQL and Redis are started here, on private ports; a benchmark whose server is not installed is skipped by name.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.servers import Postgres, Redis, ServerMissing, postgres, redis  # noqa: E402 - found by the line above

REFERENCE = [
    f"engine.{where}{tokens}"
    for where in ("sqlite.inprocess", "sqlite.http", "postgres.http")
    for tokens in ("", ".tokens")
]
BENCHES = [*REFERENCE, "engine.live_loops", "engine.claim", "sandbox.executions", "calls"]
ON_REQUEST = ["engine.claim.sqlite", "figures.postgres", "figures.sqlite"]
"""Too long for every day."""
BUDGETS: dict[str, dict[str, tuple[float, float]]] = {
    "engine.claim": {"claim_p99_ms": (0.0, 25.0), "plan_grew_mb": (0.0, 150.0)},
    "sandbox.executions": {"per_second": (100.0, math.inf), "wrong": (0, 0)},
    "engine.live_loops": {"rss_mb": (0.0, 400.0), "share": (0.9, 2.0)},
    "calls": {
        "text_stream_s": (0.0, 1.0),
        "arguments_stream_s": (0.0, 1.0),
        "adapter_us": (0.0, 20.0),
        "rate_limit_us": (0.0, 200.0),
    },
}
"""What `--hold` holds a benchmark to: the least and the most of its figures."""


class Servers:
    """PostgreSQL and Redis for the benchmarks that want them, started when the first one does."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._postgres: Postgres | None = None
        self._redis: Redis | None = None
        self._databases = 0

    def options(self, bench: str) -> list[str]:
        """What the process of a benchmark is told of them: a database that is new. Raises ServerMissing."""
        if "postgres" not in bench and bench != "engine.claim":
            return []
        self._postgres = self._postgres or self._stack.enter_context(postgres())
        self._redis = self._redis or self._stack.enter_context(redis())
        url = self._postgres.create_database(f"bench{self._databases}")
        self._databases += 1
        pids = [self._postgres.pid, self._redis.pid]
        return ["--database", url, "--redis", self._redis.url, "--servers", *map(str, pids)]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One benchmark in this process."""
    if options.benches[0] == "sandbox.executions":
        from scripts.sandbox_work import measure_executions

        return measure_executions(executions=options.executions)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": options.var,
        "GYMWEB_DATABASE_URL": options.database or f"sqlite:///{options.var}/bench.sqlite3",
        "GYMWEB_REDIS_URL": options.redis,
        "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
        "GYMWEB_LOG_LEVEL": "WARNING",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from scripts import call_work, figures_work, queue_work, reference_work

    bench = options.benches[0]
    if bench == "calls":
        return call_work.measure_calls()
    if bench.startswith("engine.claim"):
        return queue_work.measure_claims(queued=options.queued)
    if bench.startswith("figures."):
        return figures_work.measure_figures(rollouts=options.queued, servers=options.servers)
    if bench == "engine.live_loops":
        return reference_work.measure_live_loops(loops=options.loops)
    return reference_work.measure_cpu(bench, rollouts=options.rollouts, servers=options.servers)


def repeat(bench: str, options: argparse.Namespace, servers: Servers) -> dict[str, Any]:
    """The run with the median of its decisive figure, and that figure of all runs. Raises ServerMissing."""
    runs = [_run(bench, options, servers.options(bench)) for _ in range(options.runs if bench in REFERENCE else 1)]
    figure = "cpu_ms_per_rollout"
    if len(runs) == 1 or figure not in runs[0]:
        return runs[0]
    middle = statistics.median_low([run[figure] for run in runs])
    chosen = next(run for run in runs if run[figure] == middle)
    return {**chosen, "runs": [run[figure] for run in runs]}


def _run(bench: str, options: argparse.Namespace, told: list[str]) -> dict[str, Any]:
    import tempfile

    sizes = [
        "--rollouts",
        options.rollouts,
        "--executions",
        options.executions,
        "--loops",
        options.loops,
        "--queued",
        options.queued,
    ]
    with tempfile.TemporaryDirectory(prefix="gymweb-bench-") as var:
        command = [sys.executable, __file__, bench, "--once", "--var", var, *map(str, sizes), *told]
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
