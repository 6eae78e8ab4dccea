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
    rollouts = size(500, 5_000)
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


WAITING = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND relation = 'rollouts_rollout'::regclass"
LIVE = "SELECT count(*) FROM rollouts_worker WHERE state = 'active' AND lease_expires_at > now()"


def sleep_past_the_lease(cluster: Installation, pid: int) -> None:
    """Stop a worker that has results to write until others have taken its lease, then let it go on as if nothing had
    happened."""
    worker = next(program for program in cluster.programs if program.pid == pid)
    with cluster.connection() as connection, connection.transaction():
        # Nobody can write for a moment, so that the worker stops amid writing, with more results that wait.
        connection.execute("LOCK TABLE rollouts_rollout IN EXCLUSIVE MODE")
        wait_until(lambda: cluster.number(WAITING) >= 2, 10, "both workers wait for the lock")
        time.sleep(0.6)
        worker.signal(signal.SIGSTOP)
    try:
        live = f"SELECT count(*) FROM rollouts_worker WHERE pid = {pid} AND state = 'active'"
        wait_until(lambda: cluster.number(live) == 0, 5 * LEASE, lambda: f"its lease is taken; {cluster.tell()}")
        time.sleep(0.3)
    finally:
        worker.signal(signal.SIGCONT)
    wait_until(lambda: cluster.number(live) == 1, 10, lambda: f"it has a new identity; {cluster.tell()}")


def test_only_the_rollout_that_kills_its_worker_fails(cluster: Installation, show) -> None:
    rollouts = size(32, 256)
    _, tools = cluster.tools("--tool-ms", size(120, 250), "--database", cluster.database_url)
    model = cluster.model("--latency-ms", size(80, 170))
    killer = rollouts // 2
    faults = ["kill_worker" if number == killer else "" for number in range(rollouts)]
    collection = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={"all": {"faults": faults, "model": "mock", "environment": "weather"}},
    )["all"]
    began = time.monotonic()
    workers, killed = [cluster.worker(256)], 0

    def supervise() -> bool:
        """Start a new worker for one that was killed, as a supervisor does; after the first loss there are four."""
        nonlocal killed
        ended = [worker for worker in workers if worker.exit_code is not None]
        for worker in ended:
            assert worker.exit_code == -signal.SIGKILL, worker.said[-3000:]
            workers.remove(worker)
        killed += len(ended)
        workers.extend(cluster.worker(256) for _ in range((4 if killed else 1) - len(workers)))
        return cluster.number("SELECT count(*) FROM rollouts_collection WHERE finished_at IS NULL") == 0

    wait_until(supervise, 150, cluster.tell)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    in_flight = cluster.number("SELECT count(*) FROM rollouts_rollout WHERE lost > 0")
    assert in_flight >= size(26, 200), "too few ran beside it to say anything"
    failed = "SELECT t.index, r.error_kind, r.lost FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id"
    assert cluster.rows(f"{failed} WHERE r.status = 'failed'") == [(killer, "worker_lost", 3)]
    assert (figures["completed"], killed) == (rollouts - 1, 3)
    wait_until(lambda: supervise() and cluster.number(LIVE) == len(workers), 20, cluster.tell)
    assert cluster.leave(*workers) == [0] * 4
    company = cluster.rows("SELECT lost, count(*) FROM rollouts_rollout GROUP BY 1 ORDER BY 1")
    show(**figures, workers_killed=killed, by_losses=dict(company), seconds=round(seconds, 1))
