"""Workers on PostgreSQL reserve slots of limits: exact for all together, without a lock that all claims share."""

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from apps.rollouts.engine import claiming
from tests.deadlines import DEADLINE
from tests.faults.cutting_proxy import CuttingProxy
from tests.faults.installation import Installation, wait_until

pytestmark = pytest.mark.slow
MODEL_LIMIT, ENVIRONMENT_LIMIT, OWN_LIMIT = 5, 7, 3


@pytest.fixture
def planned(cluster: Installation) -> Installation:
    """Two collections with one model, one with a model and an environment of its own; no worker runs."""
    endpoint = {"base_url": "http://127.0.0.1:9/v1"}
    shared = {"model": "small", "environment": "shared"}
    cluster.ids = cluster.plan(
        models={"small": {**endpoint, "concurrency": MODEL_LIMIT}, "other": endpoint},
        environments={"shared": {**endpoint, "concurrency": ENVIRONMENT_LIMIT}, "apart": endpoint},
        collections={
            "first": {"faults": [""] * 20, **shared},
            "second": {"faults": [""] * 20, **shared, "concurrency": OWN_LIMIT},
            "third": {"faults": [""] * 20, "model": "other", "environment": "apart"},
        },
    )
    return cluster


@pytest.fixture
def connection(planned: Installation) -> Iterator[Any]:
    with planned.connection() as connection:
        yield connection


def worker(connection: Any, state: str = "active") -> int:
    columns = 'host, pid, "group", seats, busy, backlog, trouble, refuses, meters, state, started_at, heartbeat_at'
    sql = f"""INSERT INTO rollouts_worker ({columns}, lease_expires_at)
        VALUES ('h', 1, '', 64, 0, 0, '', '{{}}', '{{}}', %s, now(), now(), now() + interval '1 hour') RETURNING id"""
    return int(connection.execute(sql, [state]).fetchone()[0])


def reserve(
    connection: Any,
    one: int,
    collection: int,
    wanted: int,
    judge_calls: int = 0,
    max_in_flight: int | None = None,
    running: dict[int, int] | None = None,
) -> int:
    """Reserve slots. Without `running`, no slots are released first."""
    if running is None:
        held = "SELECT collection_id, slots FROM rollouts_reservation WHERE worker_id = %s"
        running = dict(connection.execute(held, [one]).fetchall())
    given = [one, collection, wanted, judge_calls, max_in_flight, list(running), list(running.values())]
    sql = "SELECT rollouts_reserve(%s, %s, %s, %s, %s, %s::bigint[], %s::int[])"
    return int(connection.execute(sql, given).fetchone()[0])


def release_unused(connection: Any, one: int, running: dict[int, int]) -> dict[int, int]:
    """Give back what exceeds `running`; return the slots of other workers by collection."""
    sql = "SELECT rollouts_release(%s, %s::bigint[], %s::int[])"
    connection.execute(sql, [one, list(running), list(running.values())])
    sums = "SELECT collection_id, SUM(slots) FROM rollouts_reservation WHERE worker_id <> %s GROUP BY collection_id"
    return dict(connection.execute(sums, [one]).fetchall())


def test_the_smallest_limit_counts_the_reservations_of_all_workers(planned, connection):
    one, other = worker(connection), worker(connection)
    first, second, third = planned.ids["first"], planned.ids["second"], planned.ids["third"]
    assert reserve(connection, one, second, 64) == OWN_LIMIT
    assert reserve(connection, other, second, 64) == 0
    assert reserve(connection, other, first, 64, judge_calls=1) == MODEL_LIMIT - OWN_LIMIT - 1
    assert reserve(connection, other, first, 64) == 1
    assert reserve(connection, other, third, 64, max_in_flight=2) == 2
    assert release_unused(connection, one, {second: OWN_LIMIT}) == {first: 2, third: 2}


def test_a_worker_gives_back_what_it_does_not_run(planned, connection):
    one, other, first = worker(connection), worker(connection), planned.ids["first"]
    assert reserve(connection, one, first, 64) == MODEL_LIMIT
    release_unused(connection, one, {first: 2})
    assert reserve(connection, other, first, 64) == MODEL_LIMIT - 2
    release_unused(connection, one, {first: 64})
    assert release_unused(connection, other, {first: 3}) == {first: 2}


@pytest.mark.parametrize("state", ["lost", "stopped"])
def test_a_worker_without_a_lease_holds_nothing(planned, connection, state):
    gone, heir, first = worker(connection), worker(connection), planned.ids["first"]
    assert reserve(connection, gone, first, 64) == MODEL_LIMIT
    connection.execute("UPDATE rollouts_worker SET state = %s WHERE id = %s", [state, gone])
    assert reserve(connection, heir, first, 64) == MODEL_LIMIT


def test_unused_slots_are_given_back_before_more_are_reserved(planned, connection):
    one, first, second = worker(connection), planned.ids["first"], planned.ids["second"]
    assert reserve(connection, one, first, 64) == MODEL_LIMIT
    assert reserve(connection, one, second, 1) == 0
    assert reserve(connection, one, second, 1, running={first: MODEL_LIMIT - 1}) == 1
    assert release_unused(connection, worker(connection), {}) == {first: MODEL_LIMIT - 1, second: 1}


def test_a_paused_collection_gets_no_slots(planned, connection):
    first = planned.ids["first"]
    connection.execute("UPDATE rollouts_collection SET state = 'paused', pause_reason = 'asked' WHERE id = %s", [first])
    assert reserve(connection, worker(connection), first, 64) == 0


def test_only_claims_that_share_a_limit_wait_for_each_other(planned, connection):
    one, other = worker(connection), worker(connection)
    first, second, third = planned.ids["first"], planned.ids["second"], planned.ids["third"]
    granted: list[int] = []

    def reserve_later() -> None:
        with planned.connection() as own:
            granted.append(reserve(own, other, second, 64))

    waiting = threading.Thread(target=reserve_later)
    with psycopg.connect(planned.database_url) as open_one:
        assert reserve(open_one, one, first, 4) == 4
        assert reserve(connection, other, third, 64) == 64
        waiting.start()
        locks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: planned.number(locks) == 1, DEADLINE, "it waits for the lock")
        assert not granted
    waiting.join(DEADLINE)
    assert granted == [MODEL_LIMIT - 4]


def test_many_workers_at_once_never_reserve_more_than_the_limit(planned, connection):
    first, second = planned.ids["first"], planned.ids["second"]
    workers, rounds = 8, 100
    ids = [worker(connection) for _ in range(workers)]
    most, done = [0], threading.Event()
    total = "SELECT COALESCE(SUM(slots), 0) FROM rollouts_reservation WHERE collection_id IN (%s, %s)"

    def work(one: int) -> None:
        with planned.connection() as own:
            for number in range(rounds):
                collection = second if (one + number) % 3 == 0 else first
                granted = reserve(own, one, collection, 1 + number % 4)
                release_unused(own, one, {collection: granted - number % 2} if granted else {})

    def watch() -> None:
        with planned.connection() as own:
            while not done.is_set():
                most[0] = max(most[0], int(own.execute(total, [first, second]).fetchone()[0]))

    threads = [threading.Thread(target=work, args=[one]) for one in ids]
    watching = threading.Thread(target=watch)
    for thread in [watching, *threads]:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    done.set()
    watching.join(DEADLINE)
    assert 0 < most[0] <= MODEL_LIMIT


def test_a_statement_whose_connection_broke_takes_back_no_slots_later(planned, connection, database):
    one, other = worker(connection), worker(connection)
    first, third = planned.ids["first"], planned.ids["third"]
    claims = f"""
from django.db import OperationalError
from apps.rollouts.engine.database_thread import _with_live_connection as call
from apps.rollouts.engine.reservations import Reservations
reservations = Reservations()
def claim(running, collection, wanted):
    reservations.read({one}, running)
    return reservations.reserve(collection, wanted=wanted, judge_calls=0, max_in_flight=None)
print("granted", call(claim, {{}}, {first}, {MODEL_LIMIT}))
try:
    print("granted", call(claim, {{{first}: 1}}, {third}, 1))
except OperationalError as problem:
    print("broke", problem)
print("granted", call(claim, {{{first}: 1}}, {first}, {MODEL_LIMIT - 1}))
"""
    proxy = CuttingProxy(database.port)
    url = planned.database_url.replace(f":{database.port}/", f":{proxy.port}/")
    waiting = """SELECT client_port FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%rollouts_reserve%' AND datname = current_database()"""
    with contextlib.closing(proxy), psycopg.connect(planned.database_url) as locking:
        model = "SELECT policy_model_id FROM rollouts_collection WHERE id = %s"
        locking.execute(f"SELECT pg_advisory_xact_lock(x'47594D01'::int, ({model})::int)", [third])
        claiming_twice = planned.start("claims", "manage.py", "shell", "--command", claims, GYMWEB_DATABASE_URL=url)
        wait_until(lambda: bool(planned.rows(waiting)), DEADLINE, planned.tell)
        assert proxy.cut(planned.number(waiting))
        assert claiming_twice.wait(DEADLINE) == 0, claiming_twice.said
    granted = re.findall(r"granted (\d+)|(broke)", claiming_twice.said)
    assert granted == [(str(MODEL_LIMIT), ""), ("", "broke"), (str(MODEL_LIMIT - 1), "")]
    going_on = "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND query LIKE 'SELECT rollouts_reserve%'"
    wait_until(lambda: planned.number(going_on) == 0, DEADLINE, "the statement goes on and ends")
    assert reserve(connection, other, first, 64) == 0


def test_a_stopping_worker_does_not_wait_for_another_that_stops(planned, connection):
    one, other, first = worker(connection), worker(connection), planned.ids["first"]
    empty = "INSERT INTO rollouts_reservation (worker_id, collection_id, slots) VALUES (%s, %s, 0)"
    for pk in (one, other):
        connection.execute(empty, [pk, first])
    connection.execute("UPDATE rollouts_collection SET state = 'paused', pause_reason = 'asked' WHERE id = %s", [first])
    release = f"""
from django.db import connection
from apps.rollouts.engine.worker_leases import release_lease
connection.cursor().execute("SET lock_timeout = '2s'")
release_lease(worker_id={one})
"""
    with psycopg.connect(planned.database_url) as stopping:
        stopping.execute("DELETE FROM rollouts_reservation WHERE worker_id = %s", [other])
        released = planned.start("release", "manage.py", "shell", "--command", release)
        assert released.wait(DEADLINE) == 0, released.said
        stopping.rollback()
    assert planned.rows(f"SELECT state FROM rollouts_worker WHERE id = {one}") == [("stopped",)]
    assert planned.rows("SELECT worker_id FROM rollouts_reservation") == [(other,)]


def test_a_claim_does_not_read_rollouts_that_have_ended(planned, connection):
    pk = planned.ids["first"]
    selected = claiming._SELECT_QUEUED.format(
        columns="id", lost=claiming._NEVER_LOST, running="", limit=4, lock="FOR UPDATE SKIP LOCKED", now="now()"
    )
    connection.execute("SET enable_sort = off")
    connection.execute("SET enable_seqscan = off")
    plan = str(connection.execute(f"EXPLAIN {selected}", [pk, worker(connection)]).fetchall())
    assert "rollout_queue" in plan
    assert "rollout_page" not in plan
