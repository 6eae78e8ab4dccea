"""A database that is locked for longer than a lease, or that stores what it was given but whose answer is lost."""

import re
import signal
import time

import pytest

from scripts.servers import Postgres, free_port
from tests.faults.installation import LEASE, Installation, size
from tests.faults.judging import judge

pytestmark = pytest.mark.slow


def plan(cluster: Installation, rollouts: int) -> int:
    _, tools = cluster.tools("--tool-ms", 20)
    model = cluster.model("--latency-ms", 150, "--jitter-ms", 100)
    return cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {"faults": [""] * 100, "model": "mock", "environment": "weather", "repeats": rollouts // 100}
        },
    )["all"]


def test_a_table_locked_longer_than_a_lease_expires_no_lease(cluster: Installation, show) -> None:
    rollouts = size(600, 1_500)
    collection = plan(cluster, rollouts)
    workers = [cluster.worker(32) for _ in range(2)]
    cluster.wait_ended(rollouts // 4, collection, seconds=60)
    with cluster.connection() as connection, connection.transaction():
        connection.execute("LOCK TABLE rollouts_rollout IN ACCESS EXCLUSIVE MODE")
        assert cluster.ended(collection) < rollouts
        time.sleep(2.5 * LEASE)
    cluster.wait_finished(collection, seconds=60)
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["lost"], figures["again"]) == (rollouts, 0, 0)
    assert cluster.number("SELECT count(*) FROM rollouts_worker") == 2
    assert cluster.leave(*workers) == [0, 0]
    show(**figures, locked_s=2.5 * LEASE)


def test_results_committed_without_an_answer_are_not_stored_twice(
    cluster: Installation, database: Postgres, show
) -> None:
    rollouts = size(300, 2_000)
    collection = plan(cluster, rollouts)
    port = free_port()
    proxy = cluster.start(
        "proxy", "tests/faults/losing_proxy.py", "--port", port, "--to", database.port, "--every", size(6, 12)
    )
    url = cluster.database_url.replace(f":{database.port}/", f":{port}/")
    workers = [cluster.worker(32, GYMWEB_DATABASE_URL=url) for _ in range(2)]
    cluster.wait_ended(10, collection, seconds=30)
    proxy.signal(signal.SIGUSR1)
    cluster.wait_finished(collection, seconds=120)
    figures = judge(cluster, collection)
    assert figures["completed"] == rollouts
    assert cluster.leave(*workers) == [0, 0]
    assert [worker.said for worker in workers if "cannot be stored" in worker.said] == []
    assert cluster.leave(proxy) == [0]
    found = re.search(r"cut (\d+)", proxy.said)
    assert found
    assert int(found[1]) >= size(2, 10)
    show(**figures, answers_lost=int(found[1]))
