"""Sessions of workers are terminated, or their connections are cut while their statements go on. Workers lose their
leases, and some are killed. No limit is exceeded.

A row with status `running` is not always a rollout in flight: one that has ended may wait to be stored, and a claim
whose answer was lost runs nowhere (decisions 6 and 19). So the rows of each look are compared with what the simulated
workers wrote about starts and ends.
"""

import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from scripts.servers import Postgres
from tests.deadlines import DEADLINE
from tests.faults.cutting_proxy import CuttingProxy
from tests.faults.installation import Installation, Program, size, wait_until

pytestmark = pytest.mark.slow
PROCESSES, WORKERS, SEATS = 2, 5, 8
END_SECONDS = (0.02, 0.25)
EXPIRE_SECONDS = 4.0
LOOK_SECONDS = 0.005
MODELS = {"small": 7, "other": 9}
ENVIRONMENTS = {"shared": 11, "apart": 100}
COLLECTIONS: dict[str, dict[str, Any]] = {
    "second": {"model": "small", "environment": "shared", "concurrency": 3},
    "first": {"model": "small", "environment": "shared"},
    "third": {"model": "small", "environment": "apart"},
    "fourth": {"model": "other", "environment": "shared"},
    "fifth": {"model": "other", "environment": "apart"},
}
# One statement, so one snapshot. Rows are (slots, worker, collection, number) and (running, lease, rollout, attempt,
# collection).
LOOK = """
    SELECT 'slots', worker_id, slots, 0, collection_id FROM rollouts_reservation
    WHERE slots > 0 AND worker_id IN (SELECT id FROM rollouts_worker WHERE state IN ('active', 'draining'))
    UNION ALL SELECT 'running', lease, id, attempt, collection_id FROM rollouts_rollout WHERE status = 'running'
"""
# Waits up to 0.1 s for a statement like this, and interrupts it. Only the server is quick enough for such short ones.
FIND = """
    CREATE FUNCTION pg_temp.find(wanted text, terminate boolean, OUT what text, OUT port int) LANGUAGE plpgsql AS $$
    DECLARE one record;
    BEGIN
        WHILE clock_timestamp() < statement_timestamp() + interval '0.1 s' LOOP
            PERFORM pg_stat_clear_snapshot();
            SELECT pid, client_port, state, wait_event_type INTO one FROM pg_stat_activity
            WHERE datname = current_database() AND application_name <> 'test' AND backend_type = 'client backend'
                AND (wanted = '' OR state <> 'idle' AND query LIKE '%' || wanted || '%')
            ORDER BY random() LIMIT 1;
            IF FOUND AND (NOT terminate OR pg_terminate_backend(one.pid)) THEN
                what := concat_ws(' ', one.state, one.wait_event_type, wanted);
                port := one.client_port;
                RETURN;
            END IF;
        END LOOP;
    END $$
"""
EXPIRE = """
    UPDATE rollouts_worker SET lease_expires_at = clock_timestamp() - interval '1 second'
    WHERE id = (SELECT id FROM rollouts_worker WHERE state = 'active' ORDER BY random() LIMIT 1)
"""
# A reservation that waits for the lock is interrupted at once, or within microseconds after it goes on.
LOCK = "SELECT pg_advisory_lock(x'47594D01'::int, %s)"
UNLOCK = "SELECT pg_advisory_unlock(x'47594D01'::int, %s)"
STATEMENTS = ("", "rollouts_reserve", "rollouts_reserve", "rollouts_release", "UPDATE rollouts_rollout", "COMMIT")
"""What the ended session runs; with the first, it may be any session."""


class Look(NamedTuple):
    began: float
    ended: float
    rows: list[tuple[str, int, int, int, int]]


@pytest.fixture
def planned(cluster: Installation) -> Installation:
    endpoint = {"base_url": "http://127.0.0.1:9/v1"}
    cluster.ids = cluster.plan(
        models={slug: {**endpoint, "concurrency": limit} for slug, limit in MODELS.items()},
        environments={slug: {**endpoint, "concurrency": limit} for slug, limit in ENVIRONMENTS.items()},
        collections={
            name: {"faults": [""] * 100, "repeats": size(20, 60), **fields} for name, fields in COLLECTIONS.items()
        },
    )
    return cluster


class Disturbance:
    """Threads that look at the rows, end sessions and expire leases until `stop`.

    With a proxy, they cut connections instead of terminating sessions.
    """

    def __init__(self, url: str, models: list[int], proxy: CuttingProxy | None) -> None:
        self._models, self._proxy = models, proxy
        self.looks: list[Look] = []
        self.ended: Counter[str] = Counter()
        """Ended sessions by what they did at this moment."""
        self.expired = 0
        self._url = url
        self._done = threading.Event()
        self._problems: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=[work, seconds])
            for work, seconds in [
                (self._look, (LOOK_SECONDS, LOOK_SECONDS)),
                (self._disturb, END_SECONDS),
                (self._disturb, END_SECONDS),
                (self._expire, (EXPIRE_SECONDS, EXPIRE_SECONDS)),
            ]
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE)
        assert not self._problems

    def _repeat(self, work: Any, seconds: tuple[float, float]) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True, application_name="test") as connection:
                connection.execute(FIND)
                while not self._done.wait(random.uniform(*seconds)):
                    work(connection)
        except Exception as problem:
            self._problems.append(problem)

    def _look(self, connection: Any) -> None:
        began = time.monotonic()
        rows = connection.execute(LOOK).fetchall()
        self.looks.append(Look(began, time.monotonic(), rows))

    def _disturb(self, connection: Any) -> None:
        wanted = random.choice(STATEMENTS)
        if wanted != "rollouts_reserve":
            self._end_session(connection, wanted)
            return
        model = random.choice(self._models)
        connection.execute(LOCK % model)
        time.sleep(random.uniform(0, 0.3))
        if random.random() < 0.5:
            # In one statement, to find those that go on just now.
            unlocked = UNLOCK % model
            self._end_session(
                connection, wanted, f"({unlocked} AS done OFFSET 0) AS unlocked, LATERAL pg_temp.find(%s, %s AND done)"
            )
        else:
            self._end_session(connection, wanted)
            # A cut statement waits on while its worker claims again.
            time.sleep(random.uniform(0, 1.5 if self._proxy else 0.3))
            connection.execute(UNLOCK % model)

    def _end_session(self, connection: Any, wanted: str, source: str = "pg_temp.find(%s, %s)") -> None:
        find = f"SELECT what, port FROM {source}"
        what, port = connection.execute(find, [wanted, self._proxy is None]).fetchone()
        if what and (self._proxy is None or self._proxy.cut(port)):
            self.ended[what] += 1

    def _expire(self, connection: Any) -> None:
        self.expired += connection.execute(EXPIRE).rowcount


@pytest.mark.parametrize("way", ["terminated", "cut"])
def test_no_limit_is_exceeded_while_sessions_end(
    planned: Installation, database: Postgres, tmp_path: Path, show, way: str
) -> None:
    proxy = CuttingProxy(database.port) if way == "cut" else None
    url = planned.database_url.replace(f":{database.port}/", f":{proxy.port}/") if proxy else planned.database_url
    options = ["--workers", WORKERS, "--seats", SEATS, "--shortest", 0.02, "--longest", 0.4]

    def start(number: int) -> Program:
        given = [*options, "--steps", tmp_path / f"steps-{number}"]
        return planned.start("simulated", "tests/faults/simulated_workers.py", *given, GYMWEB_DATABASE_URL=url)

    programs = [start(number) for number in range(PROCESSES)]
    live = "SELECT count(*) FROM rollouts_worker WHERE state = 'active'"
    wait_until(lambda: planned.number(live) == PROCESSES * WORKERS, 60, planned.tell)
    models = [pk for (pk,) in planned.rows("SELECT id FROM policies_policymodel")]
    disturbance = Disturbance(planned.database_url, models, proxy)
    disturbance.start()
    seconds = size(30, 60)
    time.sleep(seconds / 2)
    programs[0].kill()
    programs[0] = start(PROCESSES)
    time.sleep(seconds / 2)
    disturbance.stop()
    for program in programs:
        program.signal(signal.SIGTERM)
    codes = [program.wait(30) for program in programs]
    if proxy:
        proxy.close()
    started, ended = _read_steps(list(tmp_path.glob("steps-*")))
    most, excess = _judge(planned.ids, disturbance.looks, started, ended)
    unheld = list(_unheld(disturbance.looks, started, ended))
    show(
        seconds=seconds,
        looks=len(disturbance.looks),
        started=len(started),
        ended_sessions=disturbance.ended.total(),
        statements=dict(disturbance.ended.most_common()),
        lost=planned.number("SELECT count(*) FROM rollouts_worker WHERE state = 'lost'"),
        most=most,
        excess=len(excess),
        unheld=len(unheld),
    )
    assert excess == []
    assert unheld == []
    assert codes == [0] * PROCESSES
    assert disturbance.ended.total() > seconds
    assert all(most[f"model {slug}"]["slots"] == limit for slug, limit in MODELS.items())


def _read_steps(files: list[Path]) -> tuple[set[tuple[int, int]], dict[tuple[int, int], float]]:
    """Return the started attempts, and when attempts ended."""
    started: set[tuple[int, int]] = set()
    ended: dict[tuple[int, int], float] = {}
    for what, rollout, attempt, moment in (
        found for file in files for found in re.findall(r"(start|end) (\d+) (\d+) (\S+)\n", file.read_text())
    ):
        key = (int(rollout), int(attempt))
        if what == "start":
            started.add(key)
        else:
            ended[key] = float(moment)
    return started, ended


def _in_flight(
    look: Look, started: set[tuple[int, int]], ended: dict[tuple[int, int], float]
) -> Iterator[tuple[int, int]]:
    """Return (lease, collection) of the rollouts in flight until after this look."""
    for what, lease, rollout, attempt, collection in look.rows:
        key = (rollout, attempt)
        if what == "running" and key in started and ended.get(key, look.ended + 1) > look.ended:
            yield lease, collection


def _judge(
    ids: dict[str, int], looks: list[Look], started: set[tuple[int, int]], ended: dict[tuple[int, int], float]
) -> tuple[dict[str, dict[str, int]], list[Any]]:
    """Return the most of each limit, and what was exceeded."""
    names = {pk: name for name, pk in ids.items()}
    limits = {f"model {slug}": limit for slug, limit in MODELS.items()}
    limits |= {f"environment {slug}": limit for slug, limit in ENVIRONMENTS.items()}
    limits |= {f"collection {name}": one["concurrency"] for name, one in COLLECTIONS.items() if "concurrency" in one}
    most = {name: {"limit": limit, "slots": 0, "in flight": 0, "rows": 0} for name, limit in limits.items()}
    excess: list[Any] = []

    def keys(collection: int) -> list[str]:
        one, name = COLLECTIONS[names[collection]], names[collection]
        all_keys = [f"model {one['model']}", f"environment {one['environment']}", f"collection {name}"]
        return [key for key in all_keys if key in limits]

    for look in looks:
        counts: dict[str, Counter[str]] = {"slots": Counter(), "in flight": Counter(), "rows": Counter()}
        for what, _, number, _, collection in look.rows:
            for key in keys(collection):
                counts["slots" if what == "slots" else "rows"][key] += number if what == "slots" else 1
        for _, collection in _in_flight(look, started, ended):
            counts["in flight"].update(keys(collection))
        for kind, counted in counts.items():
            for key, number in counted.items():
                most[key][kind] = max(most[key][kind], number)
                if number > limits[key] and kind != "rows":
                    excess.append((round(look.began, 3), kind, key, number, limits[key]))
    return most, excess


def _unheld(
    looks: list[Look], started: set[tuple[int, int]], ended: dict[tuple[int, int], float]
) -> Iterator[tuple[float, int, int, int, int]]:
    """Return (time, worker, collection, rollouts, slots) where a worker had fewer slots than rollouts in flight."""
    for look in looks:
        slots = {(worker, pk): number for what, worker, number, _, pk in look.rows if what == "slots"}
        for (worker, pk), number in Counter(_in_flight(look, started, ended)).items():
            if number > slots.get((worker, pk), 0):
                yield round(look.began, 3), worker, pk, number, slots.get((worker, pk), 0)
