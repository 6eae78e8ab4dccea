"""Work of the engine's benchmarks: rollouts with a mock model, on the database of Django's settings."""

import contextlib
import cProfile
import resource
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from apps.agents.models import Agent
from apps.environments.models import Adapter, Environment
from apps.gym.traces.items import dump_json
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout, TraceEvent
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.models import Dataset, DatasetVersion, Task
from scripts.model_process import mock_model
from scripts.process_figures import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
TASKS = 128
SEATS = 256
WARM_UP = 3 * TASKS
TOKENS = 400
CALLS = 3
"""Model calls per rollout: two with a tool call, one with the answer."""
SLOW_SECONDS = 5.0
EXPRESSION = ("--tool-name", "calculator", "--tool-args", '{"expression": "6 * 7"}', "--final", "\\boxed{42}")


def measure_cpu(bench: str, *, rollouts: int, servers: Sequence[int]) -> dict[str, Any]:
    """Return the CPU per rollout. `servers` are the pids of database and Redis. `loop_ms` is that of the event loop."""
    over_http, tokens = ".http" in bench, bench.endswith(".tokens")
    with mock_model("--tokens", TOKENS if tokens else 0, *(() if over_http else EXPRESSION)) as port:
        work = ReferenceWork(port, over_http=over_http, capture_tokens=tokens)
        work.run(WARM_UP, seats=SEATS)
        before, loop = cpu_seconds(*servers), time.thread_time()
        used, wall = work.run(rollouts, seats=SEATS)
        loop = time.thread_time() - loop
        beside = cpu_seconds(*servers) - before
        events = TraceEvent.objects.all()
        return {
            "cpu_ms_per_rollout": round((used + beside) / rollouts * 1000, 3),
            "worker_ms": round(used / rollouts * 1000, 3),
            "loop_ms": round(loop / rollouts * 1000, 3),
            "servers_ms": round(beside / rollouts * 1000, 3),
            "rollouts_per_s": round(rollouts / wall, 1),
            "rss_mb": rss_mb(),
            "rollouts": rollouts,
            "seats": SEATS,
            "events_stored": events.count(),
            "tokens_stored": events.filter(tokens__isnull=False).count() * TOKENS,
        }


def measure_calls(*, rollouts: int) -> dict[str, Any]:
    """Return the function calls per rollout in the event loop and the database thread; they do not depend on load."""
    with mock_model(*EXPRESSION) as port:
        work = ReferenceWork(port, over_http=False)
        work.run(WARM_UP, seats=SEATS)
        with counting_calls() as profiles:
            work.run(rollouts, seats=SEATS)
    calls: Counter[str] = Counter()
    for name, profile in profiles:
        calls[name] += sum(one.callcount for one in profile.getstats())
    loop, database = calls["MainThread"] / rollouts, calls["rollouts-database_0"] / rollouts
    return {
        "calls_per_rollout": round(loop + database),
        "loop": round(loop),
        "database": round(database),
        "rollouts": rollouts,
    }


@contextlib.contextmanager
def counting_calls() -> Iterator[list[tuple[str, cProfile.Profile]]]:
    """Profile this thread and all threads that start in the block. Yield (name of thread, profile)."""
    profiles: list[tuple[str, cProfile.Profile]] = []

    def begin(frame: FrameType | None, event: str, argument: object) -> None:
        profile = cProfile.Profile()
        profiles.append((threading.current_thread().name, profile))
        sys.setprofile(None)
        profile.enable()

    threading.setprofile(begin)
    begin(None, "", None)
    try:
        yield profiles
    finally:
        threading.setprofile(None)
        profiles[0][1].disable()


def measure_live_loops(*, loops: int, rounds: int = 3) -> dict[str, Any]:
    """Return rollouts per second, and how many there would be if only the model took time.

    `share` is the rate while rollouts wait in the queue: the ideal time of a rollout divided by the mean time between
    two starts on a seat. `overall` includes filling the seats at the start and emptying them at the end. `idle_mb` is
    the memory after TASKS rollouts, before the measured ones; `rss_mb` is the peak, `grew_mb` the difference.
    """
    with mock_model("--latency-ms", SLOW_SECONDS * 1000, *EXPRESSION) as port:
        work = ReferenceWork(port, over_http=False, concurrency=loops)
        work.run(TASKS, seats=TASKS)
        idle = current_mb()
        cpu, wall = work.run(loops * rounds, seats=loops)
    begun = Rollout.objects.order_by("started_at").values_list("started_at", flat=True)
    starts = [at.timestamp() for at in begun if at][TASKS:]
    cycle = (statistics.fmean(starts[-loops:]) - statistics.fmean(starts[:loops])) / (rounds - 1)
    ideal = loops / (CALLS * SLOW_SECONDS)
    rate = loops * rounds / wall
    return {
        "idle_mb": idle,
        "rss_mb": rss_mb(),
        "grew_mb": rss_mb() - idle,
        "rollouts_per_s": round(rate, 1),
        "ideal": round(ideal, 1),
        "share": round(CALLS * SLOW_SECONDS / cycle, 3),
        "overall": round(rate / ideal, 3),
        "cpu_ms_per_rollout": round(cpu / (loops * rounds) * 1000, 3),
        "loops": loops,
        "rollouts": loops * rounds,
    }


class ReferenceWork:
    """Rows and collections of the reference work."""

    def __init__(self, port: int, *, over_http: bool, capture_tokens: bool = False, concurrency: int = SEATS) -> None:
        self.model = PolicyModel.objects.create(
            slug="mock",
            name="mock",
            base_url=f"http://127.0.0.1:{port}/v1",
            model_name="mock",
            capture_tokens=capture_tokens,
            concurrency=concurrency,
        )
        if over_http:
            environment = Environment.objects.create(
                slug="mock", name="mock", adapter=Adapter.HTTP, base_url=f"http://127.0.0.1:{port}/environment"
            )
        else:
            environment = Environment.objects.get(slug="calculator")
        Environment.objects.filter(pk=environment.pk).update(concurrency=concurrency)
        self.dataset = make_dataset(environment, tasks=TASKS)
        self.agent = Agent.objects.create(slug="bench", name="bench")

    def plan(self, rollouts: int) -> Collection:
        return plan_collection(
            Plan(dataset=self.dataset, agent=self.agent, policy_model=self.model, repeats=rollouts // TASKS)
        )

    def run(self, rollouts: int, *, seats: int) -> tuple[float, float]:
        """Return the CPU and wall-clock seconds of this process for `rollouts` rollouts, a multiple of TASKS."""
        collection = self.plan(rollouts)
        cpu, wall = time.process_time(), time.perf_counter()
        collection = uvloop.run(finish_collection(collection, progress=lambda _: None, seats=seats))
        used = time.process_time() - cpu, time.perf_counter() - wall
        _check(collection, rollouts)
        return used


def _check(collection: Collection, rollouts: int) -> None:
    outcome = (collection.completed, collection.mean_reward)
    if outcome != (rollouts, 1.0):
        raise SystemExit(f"the work was not done: {outcome} of {collection.total}")


def make_dataset(environment: Environment, *, tasks: int) -> Dataset:
    dataset = Dataset.objects.create(slug="bench", name="bench", environment=environment)
    version = DatasetVersion.objects.create(dataset=dataset, number=1, state="ready", task_count=tasks)
    tool = {"type": "function", "name": "calculator", "description": "", "parameters": {"type": "object"}}
    prompt = [
        {"role": "system", "content": "You are a helpful assistant. " * 8},
        {"role": "user", "content": "What is 6 * 7? " * 8},
    ]
    row = dump_json({"responses_create_params": {"input": prompt, "tools": [tool]}, "expected_answer": "42"})
    Task.objects.bulk_create(
        (Task(dataset=dataset, version=version, index=index, row_json=row) for index in range(tasks)), batch_size=2_000
    )
    return dataset


def current_mb() -> int:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024**2


def rss_mb() -> int:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
