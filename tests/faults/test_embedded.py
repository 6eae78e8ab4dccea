"""The embedded default: pages, worker and SQLite in one process, which is killed or asked to leave."""

import time

import pytest

from tests.faults.installation import LEASE, Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow
RUNNING = "SELECT count(*) FROM rollouts_rollout WHERE status = 'running'"


def plan(embedded: Installation, rollouts: int) -> int:
    _, tools = embedded.tools("--tool-ms", 20)
    model = embedded.model("--latency-ms", 200, "--jitter-ms", 100)
    return embedded.plan(
        migrate=True,
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {"faults": [""] * 50, "model": "mock", "environment": "weather", "repeats": rollouts // 50}
        },
    )["all"]


def test_everything_completes_though_the_single_process_is_killed_twice(embedded: Installation, show) -> None:
    # So few seats that the rollouts of a killed process are taken up, after its lease, long before all have ended.
    rollouts, seats = size(400, 3_000), size(24, 64)
    collection = plan(embedded, rollouts)
    began = time.monotonic()
    running, caught = [], [(0,)]
    for share in (0.2, 0.5):
        server, _ = embedded.serve("--seats", seats)
        embedded.wait_ended(int(rollouts * share), collection, seconds=60)
        # Whatever lost its worker twice would run alone, one after the other: right, but long to watch.
        unfinished = (
            f"SELECT count(*) FROM rollouts_rollout WHERE id IN ({', '.join(str(pk) for (pk,) in caught)})"
            " AND status <> 'completed'"
        )
        wait_until(lambda sql=unfinished: embedded.number(sql) == 0, 30, embedded.tell)
        server.kill()
        caught = embedded.rows("SELECT id FROM rollouts_rollout WHERE status = 'running'")
        running.append(len(caught))
    assert min(running) > 0, "it was killed while nothing ran"
    restarted = time.monotonic()
    server, _ = embedded.serve("--seats", seats)
    embedded.wait_finished(collection, seconds=90)
    figures = judge(embedded, collection)
    assert (figures["completed"], figures["lost"]) == (rollouts, sum(running))
    assert embedded.leave(server) == [0]
    show(
        **figures,
        running_when_killed=running,
        lease_s=LEASE,
        seconds_after_restart=round(time.monotonic() - restarted, 1),
        seconds=round(time.monotonic() - began, 1),
    )


def test_the_single_process_is_asked_to_leave_amid_work_and_goes_on_where_it_was(embedded: Installation, show) -> None:
    rollouts = size(150, 1_000)
    collection = plan(embedded, rollouts)
    took = []
    for grace in (0.2, 10.0):
        server, _ = embedded.serve("--seats", 64, GYMWEB_WORKER_GRACE_SECONDS=grace)
        embedded.wait_ended(embedded.ended(collection) + 20, collection, seconds=30)
        wait_until(lambda: embedded.number(RUNNING) > 0, 10, embedded.tell)
        began = time.monotonic()
        assert embedded.leave(server) == [0]
        took.append(round(time.monotonic() - began, 2))
        assert embedded.number(RUNNING) == 0
    server, _ = embedded.serve("--seats", 64)
    embedded.wait_finished(collection, seconds=60)
    figures = judge(embedded, collection)
    assert (figures["completed"], figures["lost"], figures["again"] > 0) == (rollouts, 0, True)
    assert embedded.leave(server) == [0]
    show(**figures, seconds_to_leave=took)
