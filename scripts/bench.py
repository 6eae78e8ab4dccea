#!/usr/bin/env python
"""Benchmarks of the engine, one JSON object a line: CPU of this process for each rollout of the reference work.

The reference work: 3 policy-model calls over HTTP, 2 tool calls, 1 verification, zero latency, 256 in flight, traces
stored. `engine.sqlite.inprocess` runs tools and verifier in this process, `engine.sqlite.http` on a resource server.
The model's and the server's own CPU is not counted: they stand for somebody else's machines.
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ("engine.sqlite.inprocess", "engine.sqlite.http")
SEATS = 256
WARM_UP = 256


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def mock_model(*arguments: str) -> Iterator[int]:
    """A mock model process on a free port, ended with the block."""
    port = free_port()
    command = [sys.executable, str(ROOT / "scripts" / "mock_model.py"), "--port", str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


def measure(bench: str, rollouts: int) -> dict[str, object]:
    """Run one benchmark in this process, on a database of its own."""
    with tempfile.TemporaryDirectory(prefix="gymweb-bench-") as var:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "gymweb.settings",
            "GYMWEB_VAR": var,
            "GYMWEB_DATABASE_URL": f"sqlite:///{var}/bench.sqlite3",
            "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
            "GYMWEB_LOG_LEVEL": "WARNING",
        }
        sys.path.insert(0, str(ROOT))
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        over_http = bench.endswith(".http")
        expression = ("--tool-name", "calculator", "--tool-args", '{"expression": "6 * 7"}', "--final", "\\boxed{42}")
        with mock_model(*(() if over_http else expression)) as port:
            return {"bench": bench, **_collect(port, over_http=over_http, rollouts=rollouts)}


def _collect(port: int, *, over_http: bool, rollouts: int) -> dict[str, object]:
    import uvloop
    from django.db import connection

    from apps.agents.models import Agent
    from apps.environments.models import Adapter, Environment
    from apps.gym.items import dump_json
    from apps.policies.models import PolicyModel, Wire
    from apps.rollouts.collecting import finish_collection
    from apps.rollouts.planning import plan_collection
    from apps.tasks.models import Dataset, DatasetVersion, Task

    model = PolicyModel.objects.create(
        slug="mock", name="mock", wire=Wire.CHAT, base_url=f"http://127.0.0.1:{port}/v1", model_name="mock"
    )
    if over_http:
        environment = Environment.objects.create(
            slug="mock", name="mock", adapter=Adapter.HTTP, base_url=f"http://127.0.0.1:{port}/environment"
        )
    else:
        environment = Environment.objects.get(slug="calculator")
    dataset = Dataset.objects.create(slug="bench", name="bench", environment=environment)
    version = DatasetVersion.objects.create(dataset=dataset, number=1, state="ready", task_count=100)
    tool = {"type": "function", "name": "calculator", "description": "", "parameters": {"type": "object"}}
    prompt = [
        {"role": "system", "content": "You are a helpful assistant. " * 8},
        {"role": "user", "content": "What is 6 * 7? " * 8},
    ]
    row = {"responses_create_params": {"input": prompt, "tools": [tool]}, "expected_answer": "42"}
    Task.objects.bulk_create(
        Task(dataset=dataset, version=version, index=index, row_json=dump_json(row)) for index in range(100)
    )
    agent = Agent.objects.create(slug="bench", name="bench")

    def run(repeats: int) -> tuple[float, float]:
        collection = plan_collection(dataset=dataset, agent=agent, policy_model=model, repeats=repeats)
        cpu, wall = time.process_time(), time.perf_counter()
        collection = uvloop.run(finish_collection(collection, progress=lambda _: None, seats=SEATS))
        used = time.process_time() - cpu, time.perf_counter() - wall
        outcome = (collection.completed, collection.mean_reward)
        if outcome != (collection.total, 1.0):
            raise SystemExit(f"the work was not done: {outcome} of {collection.total}")
        return used

    run(max(1, WARM_UP // 100))
    repeats = max(1, rollouts // 100)
    cpu, wall = run(repeats)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM rollouts_traceevent")
        events = cursor.fetchone()[0]
    done = repeats * 100
    return {
        "cpu_ms_per_rollout": round(cpu / done * 1000, 3),
        "rollouts_per_s": round(done / wall, 1),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "rollouts": done,
        "seats": SEATS,
        "events_stored": events,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", default=BENCHES, help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--rollouts", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3, help="fresh processes a benchmark; the median is printed")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.benches[0], options.rollouts)), flush=True)
        return
    for bench in options.benches:
        command = [sys.executable, __file__, bench, "--once", "--rollouts", str(options.rollouts)]
        runs = [json.loads(subprocess.check_output(command).splitlines()[-1]) for _ in range(options.runs)]
        middle = statistics.median_low([run["cpu_ms_per_rollout"] for run in runs])
        chosen = next(run for run in runs if run["cpu_ms_per_rollout"] == middle)
        print(json.dumps({**chosen, "runs": [run["cpu_ms_per_rollout"] for run in runs]}), flush=True)


if __name__ == "__main__":
    main()
