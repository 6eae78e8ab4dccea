"""Workers that are killed, stopped past their lease, or killed by what they run."""

import signal
import time

import pytest

from tests.faults.installation import LEASE, Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow
STOPS = size(1, 5)


def test_rollouts_complete_exactly_once_though_one_worker_is_killed_and_one_sleeps_past_its_lease(
    cluster: Installation, show
) -> None:
    rollouts = size(600, 5_000)
    _, tools = cluster.tools("--tool-ms", 20, "--verify-ms", 250)
    model = cluster.model("--latency-ms", 200, "--jitter-ms", 100)
    collection = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {"faults": [""] * 100, "model": "mock", "environment": "weather", "repeats": rollouts // 100}
        },
    )["all"]
    began = time.monotonic()
    workers = [cluster.worker(64) for _ in range(3)]
    cluster.wait_ended(rollouts // 10, collection, seconds=60)
    workers[0].kill()
    for stop in range(1, STOPS + 1):
        cluster.wait_ended(rollouts * (stop + 1) // (STOPS + 4), collection, seconds=60)
        sleep_past_the_lease(cluster, workers[1].pid)
    cluster.wait_finished(collection, seconds=150)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["max_attempt"] > 1) == (rollouts, True)
    assert figures["stale_ends_fenced"] > 0
    identities = cluster.number(f"SELECT count(*) FROM rollouts_worker WHERE pid = {workers[1].pid}")
    assert identities == STOPS + 1
    assert cluster.leave(*workers[1:]) == [0, 0]
    show(**figures, stops=STOPS, rollouts_per_s=round(rollouts / seconds), seconds=round(seconds, 1))


def sleep_past_the_lease(cluster: Installation, pid: int) -> None:
    """Stop a worker that has results to write until others have taken its lease, then let it go on as if nothing had
    happened."""
    worker = next(program for program in cluster.programs if program.pid == pid)
    with cluster.connection() as connection, connection.transaction():
        # Nobody can write for a moment, so that the worker stops amid writing, with more results that wait.
        connection.execute("LOCK TABLE rollouts_rollout IN EXCLUSIVE MODE")
        time.sleep(0.6)
        worker.signal(signal.SIGSTOP)
    try:
        live = f"SELECT count(*) FROM rollouts_worker WHERE pid = {pid} AND state = 'active'"
        wait_until(lambda: cluster.number(live) == 0, 5 * LEASE, lambda: f"its lease is taken; {cluster.tell()}")
        time.sleep(0.3)
    finally:
        worker.signal(signal.SIGCONT)
    wait_until(lambda: cluster.number(live) == 1, 10, lambda: f"it has a new identity; {cluster.tell()}")
