"""Measure how claims scale with the number of workers.

`python -m scripts.measure_scaling [--workers 1 4 16 64] [--seats 256] [--rate 200] [--seconds 20] [--events 1]
[--spread 0]` simulates workers on a PostgreSQL of its own. They run the real code of leases, heartbeats, claims and
recording; only the rollout itself is simulated: it sleeps, stores one event and ends. With `--events 4`, it stores four
events, one after each quarter of its time. With `--spread 0.5`, its time varies from half to one and a half of the
mean. Ten collections share four models, whose limits add up to a quarter more than all seats. The seats are divided
among the workers, so the ideal rate is the same for every number of workers.

One JSON object per number of workers: rollouts per second and their share of the ideal rate, claims per second, their
mean time and the share of it spent waiting for locks of PostgreSQL (sampled), CPU of PostgreSQL and of the workers per
rollout, and the most rollouts of one model that ran at once beside its limit. The exit status is 1 if a limit was
exceeded.
The workers share two processes, so on a small machine their own CPU bounds the rate.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import connection

from scripts.measuring import end_servers_when_stopped, say, use_database
from scripts.process_figures import cpu_seconds
from scripts.servers import postgres

COLLECTIONS, MODELS, PROCESSES = 10, 4, 2
WARM_UP = 12.0
FIRST_ENDS_SECONDS = 60.0
"""Maximum seconds until the first rollouts have ended."""
LOOK_SECONDS = 0.1
SAMPLE_SECONDS = 0.1


def measure(workers: int, options: argparse.Namespace, *, var: Path, settings: dict[str, str], server: int) -> bool:
    """Measure one number of workers. Return True if no limit was exceeded."""
    limit = round(1.25 * options.seats / MODELS)
    _plan(rollouts=round(options.rate * (options.seconds + 4 * WARM_UP)), limit=limit)
    sizes = [workers // PROCESSES + (number < workers % PROCESSES) for number in range(PROCESSES)]
    command = [sys.executable, "-m", "scripts.measure_scaling", f"--seats={options.seats // workers}"]
    command += [f"--latency={options.seats / options.rate}", f"--seconds={options.seconds + 2 * WARM_UP}"]
    command += [f"--events={options.events}", f"--spread={options.spread}"]
    files = [var / f"seen-{number}.json" for number, size in enumerate(sizes) if size]
    simulators = [
        subprocess.Popen([*command, f"--simulate={size}", f"--write={file}"], env=os.environ | settings)
        for size, file in zip(sizes, files, strict=False)
    ]
    pids = [one.pid for one in simulators]
    try:
        began = time.monotonic()
        while _ended() < options.rate and time.monotonic() - began < FIRST_ENDS_SECONDS:
            time.sleep(LOOK_SECONDS)
        time.sleep(WARM_UP)
        ended, began = _ended(), time.monotonic()
        database, python = _cpu_without_this_connection(server), cpu_seconds(*pids)
        waiting = _watch_locks(options.seconds)
        ended, wall = _ended() - ended, time.monotonic() - began
        database, python = _cpu_without_this_connection(server) - database, cpu_seconds(*pids) - python
        for one in simulators:
            one.wait(timeout=120)
        seen = [json.loads(file.read_text()) for file in files]
    finally:
        for one in simulators:
            one.kill()
    most = _most_at_once([step for one in seen for step in one["steps"]])
    claims, claiming = (sum(one[name] for one in seen) for name in ("claims", "claiming"))
    say(
        "scaling",
        workers=workers,
        seats_a_worker=options.seats // workers,
        rollouts_per_s=round(ended / wall, 1),
        share=round(ended / wall / options.rate, 3),
        claims_per_s=round(claims / seen[0]["seconds"], 1),
        claim_ms=round(claiming / claims * 1000, 2),
        lock_share=round(waiting * seen[0]["seconds"] / claiming, 3),
        database_ms_per_rollout=round(database / ended * 1000, 2),
        workers_ms_per_rollout=round(python / ended * 1000, 2),
        limit=limit,
        most_at_once=most,
    )
    return bool(most <= limit)


def _plan(*, rollouts: int, limit: int) -> None:
    """Replace all collections by ten new ones."""
    from apps.agents.models import Agent
    from apps.environments.models import Environment
    from apps.policies.models import PolicyModel
    from apps.rollouts.models import Collection, Rollout
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.tasks.models import Dataset
    from scripts.reference_work import TASKS, make_dataset

    Rollout.objects.all().delete()
    Collection.objects.all().delete()
    environment = Environment.objects.get(slug="calculator")
    Environment.objects.filter(pk=environment.pk).update(concurrency=2 * MODELS * limit)
    dataset = Dataset.objects.first() or make_dataset(environment, tasks=TASKS)
    agent = Agent.objects.get(slug="default")
    for number in range(COLLECTIONS):
        model, _ = PolicyModel.objects.update_or_create(
            slug=f"simulated-{number % MODELS}",
            defaults={
                "name": "simulated",
                "base_url": "http://127.0.0.1:9/v1",
                "model_name": "simulated",
                "concurrency": limit,
            },
        )
        repeats = -(-rollouts // COLLECTIONS // TASKS)
        plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, repeats=max(1, repeats)))


def _cpu_without_this_connection(server: int) -> float:
    """Return the CPU seconds of PostgreSQL, without the process that counts waits and ended rollouts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cpu_seconds(server) - cpu_seconds(*cursor.fetchone())


def _watch_locks(seconds: float) -> float:
    """Return how many claims waited for a lock, on average over this time."""
    waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    samples: list[int] = []
    until = time.monotonic() + seconds
    with connection.cursor() as cursor:
        while time.monotonic() < until:
            time.sleep(SAMPLE_SECONDS)
            cursor.execute(waiting, ["SELECT%rollouts_reserve%"])
            samples += cursor.fetchone()
    return statistics.mean(samples)


def _ended() -> int:
    from apps.rollouts.models import Rollout

    return Rollout.objects.filter(finished_at__isnull=False).count()


def _most_at_once(steps: list[tuple[float, int, int]]) -> int:
    """Return the most rollouts of one model that ran at once, from (time, model, 1 or -1)."""
    running: Counter[int] = Counter()
    most = 0
    for _, model, change in sorted(steps, key=lambda step: (step[0], step[2])):
        running[model] += change
        most = max(most, running[model])
    return most


def simulate(
    workers: int, *, seats: int, latency: float, spread: float, events: int, seconds: float, file: Path
) -> None:
    """Run simulated workers in this process for a while, then write what their claims took."""
    import django

    django.setup()
    import uvloop
    from channels.layers import get_channel_layer

    from apps.gym.traces.events import Verification
    from apps.rollouts.engine import claimed_work, rollout_spans, worker
    from apps.rollouts.engine.recording import End
    from apps.rollouts.notifications import WORKER_CHANNEL
    from scripts.queue_work import completed_end

    seen = {"claims": 0, "claiming": 0.0, "seconds": seconds}
    steps: list[tuple[float, int, int]] = []

    async def run_rollout(*, claim: Any, setting: Any, listener: Any, **rest: Any) -> End:
        steps.append((time.time(), setting.policy_model_id, 1))
        pause = latency * random.uniform(1 - spread, 1 + spread) / events
        try:
            for _ in range(events):
                await asyncio.sleep(pause)
                listener.add_event(claim, Verification(reward=1.0))
        finally:
            steps.append((time.time(), setting.policy_model_id, -1))
        return completed_end(claim)

    def fetch_work(**given: Any) -> Any:
        began = time.perf_counter()
        fetched = claimed_work.fetch_work(**given)
        seen["claiming"] += time.perf_counter() - began
        seen["claims"] += bool(fetched.work)
        return fetched

    async def run() -> None:
        simulated = [
            worker.RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=seats, background_jobs=False)
            for _ in range(workers)
        ]
        working = [asyncio.create_task(one.handle()) for one in simulated]
        await asyncio.sleep(seconds)
        for one in simulated:
            one.stop()
        await asyncio.gather(*working)

    with mock.patch.multiple(rollout_spans, run_rollout=run_rollout, fetch_work=fetch_work):
        uvloop.run(run())
    file.write_text(json.dumps({**seen, "steps": steps}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seats", type=int, default=256, help="of all workers together; default: %(default)s")
    parser.add_argument("--rate", type=float, default=200.0, help="ideal rollouts per second; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement; default: %(default)s")
    parser.add_argument("--events", type=int, default=1, help="of a rollout; default: %(default)s")
    parser.add_argument("--spread", type=float, default=0.0, help="of the time of a rollout; default: %(default)s")
    parser.add_argument("--simulate", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--latency", type=float, default=1.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        simulate(
            options.simulate,
            seats=options.seats,
            latency=options.latency,
            spread=options.spread,
            events=options.events,
            seconds=options.seconds,
            file=options.write,
        )
        return
    end_servers_when_stopped()
    with (
        postgres(options=["-c", "max_connections=400"]) as server,
        tempfile.TemporaryDirectory(prefix="gymweb-scaling-") as var,
    ):
        given = use_database(Path(var), GYMWEB_DATABASE_URL=server.url, GYMWEB_OUTBOUND_ALLOW="127.0.0.1")
        fine = [
            measure(workers, options, var=Path(var), settings=given, server=server.pid) for workers in options.workers
        ]
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
