"""While PostgreSQL or Redis is away, the logs say so in a few lines and have no tracebacks."""

import time

import pytest

from scripts.servers import Postgres, Redis
from tests.faults.installation import Installation, Program, size, wait_until
from tests.faults.test_lost_servers import listeners
from tests.faults.test_web_without_database import ask

pytestmark = pytest.mark.slow

AGAIN = " works again after "


def lines_since(program: Program, start: int) -> list[str]:
    return program.said[start:].splitlines()


def check_outage(program: Program, start: int, subject: str) -> None:
    """One line at the start of the outage, one at its end, at most one a minute between, and nothing else."""
    lines = lines_since(program, start)
    first, *during, last = lines
    assert f"{subject} fails (" in first, lines
    assert f"{subject}{AGAIN}" in last, lines
    assert len(during) <= 1 and all(f"{subject} has failed for " in line for line in during), lines
    assert "Traceback" not in program.said[start:]


def test_an_outage_of_postgresql_is_a_line_at_its_start_and_one_at_its_end(
    cluster: Installation, database: Postgres, show
) -> None:
    key = cluster.plan(key="ada")["key"]
    headers = {"Authorization": f"Bearer {key}"}
    web, port = cluster.serve("--no-worker")
    worker = cluster.worker(8)
    wait_until(lambda: cluster.number("SELECT count(*) FROM rollouts_worker") == 1, 30, cluster.tell)
    time.sleep(2)  # every background job has begun
    said = {program: len(program.said) for program in (web, worker)}
    database.stop()
    until = time.monotonic() + size(8, 50)
    while time.monotonic() < until:
        assert ask(port, "/api/v1/me/", **headers)[0] == 503
        assert ask(port, "/readyz")[0] == 503
        assert ask(port, "/collections/", Cookie=f"sessionid={'a' * 32}")[0] == 503
        time.sleep(0.5)
    database.start()

    def is_over() -> bool:
        return ask(port, "/api/v1/me/", **headers)[0] == 200 and all(
            AGAIN in program.said[start:] for program, start in said.items()
        )

    wait_until(is_over, 60, cluster.tell)
    for program, start in said.items():
        check_outage(program, start, "The database")
    assert cluster.leave(worker, web) == [0, 0]
    show(bytes={program.name: len(program.said) - start for program, start in said.items()})


def test_an_outage_of_redis_is_a_line_at_its_start_and_one_at_its_end(
    cluster: Installation, layer: Redis, show
) -> None:
    worker = cluster.worker(8)
    wait_until(lambda: listeners(layer) == 1, 30, cluster.tell)
    start = len(worker.said)
    layer.stop()
    time.sleep(size(8, 50))
    layer.start()
    wait_until(lambda: AGAIN in worker.said[start:], 60, cluster.tell)
    check_outage(worker, start, "The channel layer")
    assert cluster.leave(worker) == [0]
    show(bytes=len(worker.said) - start)
