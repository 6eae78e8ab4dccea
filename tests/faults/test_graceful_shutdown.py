"""On SIGTERM, running rollouts finish within the grace period or are requeued. The exit code is 0."""

import re
import time

import pytest

from tests.faults.installation import Installation, Program, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow


def test_a_worker_that_is_asked_to_leave_finishes_or_releases_what_it_runs(cluster: Installation, show) -> None:
    rollouts = size(200, 1_000)
    seats = size(30, 150)
    _, tools = cluster.tools()
    model = cluster.model("--latency-ms", 100, "--jitter-ms", 900)
    collection = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={"all": {"faults": [""] * rollouts, "model": "mock", "environment": "weather"}},
    )["all"]
    held = f"SELECT count(*) FROM rollouts_rollout WHERE status = 'running' AND collection_id = {collection}"
    released, finished, took = [], [], []
    for grace in (1.0, 120.0):
        worker = cluster.worker(seats, GYMWEB_WORKER_GRACE_SECONDS=grace)
        # A rollout takes 0.3 to 3 s: many will not end within the short grace, and all will within the long one.
        cluster.wait_ended(cluster.ended(collection) + seats, collection, seconds=30)
        wait_until(lambda: cluster.number(held) >= seats // 2, 10, cluster.tell)
        before = cluster.ended(collection)
        began = time.monotonic()
        assert cluster.leave(worker, seconds=grace + 10) == [0]
        took.append(round(time.monotonic() - began, 2))
        assert cluster.number(held) == 0
        finished.append(cluster.ended(collection) - before)
        released.append(count_released(worker))
    assert released[0] > 0, (released, finished)
    assert (released[1], finished[1] > 0) == (0, True), (released, finished)
    workers = [cluster.worker(seats) for _ in range(2)]
    cluster.wait_finished(collection, seconds=90)
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["again"], figures["lost"]) == (rollouts, released[0], 0)
    assert cluster.leave(*workers) == [0, 0]
    show(**figures, released=released, finished_in_grace=finished, seconds_to_leave=took)


def count_released(worker: Program) -> int:
    found = re.search(r"(\d+) rollouts released", worker.said)
    return int(found[1]) if found else 0
