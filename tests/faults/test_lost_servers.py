"""PostgreSQL crashes and stays away, Redis is stopped, started and emptied: workers and pages outlive both."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
import redis

from scripts.servers import Postgres, Redis
from tests.deadlines import DEADLINE
from tests.faults.installation import LEASE, Api, Installation, Program, size, wait_until
from tests.faults.judging import judge
from tests.faults.plan import make_row

pytestmark = pytest.mark.slow


def test_rollouts_complete_exactly_once_though_postgresql_crashes_and_redis_is_stopped_and_emptied(
    cluster: Installation, database: Postgres, layer: Redis, show
) -> None:
    rollouts = size(400, 4_000)
    _, tools = cluster.tools("--tool-ms", 20, "--verify-ms", 50)
    model = cluster.model("--latency-ms", 200, "--jitter-ms", 100)
    planned = cluster.plan(
        key="faults",
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {"faults": [""] * 100, "model": "mock", "environment": "weather", "repeats": rollouts // 100}
        },
    )
    collection, key = planned["all"], str(planned["key"])
    web, port = cluster.serve("--no-worker")
    layer.stop()  # they begin without it
    began = time.monotonic()
    workers = [cluster.worker(32) for _ in range(3)]
    away = []

    def at(share: float) -> None:
        cluster.wait_ended(int(rollouts * share), collection, seconds=90)

    at(0.1)
    layer.start()
    heard = wait_until(lambda: listeners(layer) == len(workers), 10, cluster.tell)
    crashes = (1.0, LEASE + 1.5, *[0.0] * size(0, 8))
    for seconds in crashes:
        database.kill()
        time.sleep(seconds)
        database.start()
        away.append(seconds)
        at(0.1 + 0.5 * len(away) / len(crashes))
    layer.kill()
    time.sleep(1.0)
    layer.start()
    at(0.7)
    assert layer.ask("FLUSHALL") == "+OK"
    layer.stop()
    at(0.8)
    layer.start()
    heard_again = wait_until(lambda: listeners(layer) == len(workers), 10, cluster.tell)
    cluster.wait_finished(collection, seconds=150)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["failed"]) == (rollouts, 0)
    assert ask(port, f"/api/v1/collections/{collection}/", key)["completed"] == rollouts
    troubled = sum("The database fails (" in worker.said for worker in workers)
    assert troubled > 0, "the database was never missed"
    assert cluster.leave(*workers, web) == [0, 0, 0, 0]
    show(
        **figures,
        postgres_away_s=away,
        redis_heard_after_s=[round(heard, 1), round(heard_again, 1)],
        rollouts_per_s=round(rollouts / seconds),
        seconds=round(seconds, 1),
    )


def test_exports_and_uploads_are_retried_though_postgresql_crashes_amid_them(
    cluster: Installation, database: Postgres, show
) -> None:
    rollouts, lines = size(400, 2_000), size(4_000, 20_000)
    _, tools = cluster.tools()
    of_all = {"faults": [""] * 50, "model": "mock", "environment": "weather", "repeats": rollouts // 50}
    planned: dict[str, Any] = cluster.plan(
        key="engineer",
        models={"mock": {"base_url": cluster.model()}},
        environments={"weather": {"base_url": tools}},
        collections={"all": of_all},
    )
    web, port = cluster.serve("--no-worker")
    # PostgreSQL ends what idles in a transaction for half a lease, which a busy machine may do while it loads a file.
    worker = cluster.worker(32, GYMWEB_WORKER_LEASE_SECONDS=30)
    cluster.wait_finished(planned["all"], seconds=90)
    api = Api(port, planned["key"])
    order = {"format": "nemo_gym_rollouts", "collection": planned["all"]}
    rows = "\n".join(json.dumps(make_row(number, "")) for number in range(lines)).encode()
    upload = ("datasets/all/uploads/", rows, "application/x-ndjson")
    began = time.monotonic()
    crashes = [
        crash_amid(cluster, database, worker, "exports_export", "total > 0", lambda: api.post("exports/", order)),
        crash_amid(cluster, database, worker, "tasks_upload", "format <> ''", lambda: api.post(*upload)),
    ]
    states = cluster.rows("SELECT state, message FROM exports_export UNION ALL SELECT state, message FROM tasks_upload")
    assert set(states) == {("ready", "")}, worker.said[-3000:]
    counted = cluster.rows("SELECT considered FROM exports_export UNION ALL SELECT accepted FROM tasks_upload")
    assert {number for (number,) in counted} == {rollouts, lines}
    assert cluster.leave(worker, web) == [0, 0]
    show(jobs=len(states), crashes=crashes, seconds=round(time.monotonic() - began, 1))


def crash_amid(
    cluster: Installation,
    database: Postgres,
    worker: Program,
    table: str,
    begun: str,
    order: Callable[[], object],
) -> int:
    """Order jobs and kill PostgreSQL while one is worked at, until a crash has interrupted one; return the crashes.

    `begun` is what holds of a row once a worker knows that it has claimed it.
    """
    started = f"SELECT count(*) FROM {table} WHERE {begun} AND id = (SELECT max(id) FROM {table})"
    unfinished = f"SELECT count(*) FROM {table} WHERE state IN ('queued', 'writing', 'loading')"
    already = worker.said.count("is retried at")
    for crashes in range(1, 11):
        order()
        wait_until(lambda: cluster.number(started) == 1, 30, cluster.tell)
        database.kill()
        database.start()
        wait_until(lambda: cluster.number(unfinished) == 0, 90, cluster.tell)
        if worker.said.count("is retried at") > already:
            return crashes
    raise AssertionError("no crash met a job at work")


def listeners(layer: Redis) -> int:
    """How many workers receive notifications."""
    with redis.Redis.from_url(layer.url, decode_responses=True) as client:
        channels = [name for name in client.pubsub_channels() if name.endswith("rollouts")]
        return sum(count for _, count in client.pubsub_numsub(*channels)) if channels else 0


def ask(port: int, path: str, key: str) -> dict[str, int]:
    """What the web process answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        answer: dict[str, int] = json.load(reply)
    return answer
