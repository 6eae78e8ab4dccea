"""Looking for work costs the same however many rollouts have ended."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.recording import record_batch
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.running_collections import read_running
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_leases import (
    Vitals,
    reap_leases,
    release_lease,
    release_unknown,
    renew_lease,
    take_lease,
)
from apps.rollouts.models import Collection, Rollout
from tests.factories import make_collection, make_rollout
from tests.rollouts.work import end, plan

pytestmark = pytest.mark.django_db
WAITING = {"status": Rollout.Status.QUEUED, "reward": None, "stop_reason": "", "trace": []}


def test_candidates_are_running_collections_with_queued_rollouts_and_what_those_lost():
    fresh, lost, _idle = (make_collection(priority=priority) for priority in (1, 0, 0))
    paused = make_collection(state=Collection.State.PAUSED, pause_reason="asked")
    make_rollout(fresh, **WAITING)
    for times in (0, 2, 1):
        make_rollout(lost, **WAITING, lost=times)
    make_rollout(lost, lost=2)
    make_rollout(paused, **WAITING)
    claimable = [(one.pk, one.max_worker_losses) for one in read_running() if one.is_claimable_by("")]
    assert claimable == [(lost.pk, 2), (fresh.pk, 0)]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's plan")
def test_only_the_index_of_queued_rows_is_read():
    make_rollout(make_collection(), **WAITING)
    with CaptureQueriesContext(connection) as captured:
        read_running()
    [query] = captured
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        lines = [line for *_, line in cursor.fetchall() if re.search(r"\bqueued\b", line)]
    assert [re.sub(r" \(.*", "", line) for line in lines] == ["SEARCH queued USING INDEX rollout_queue"]


NARROW = {"rollout_queue", "rollout_leases", "PRIMARY"}
"""What is read of the rollouts while the engine works: those that wait, those that run, and rows by their ids."""


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's plan")
def test_nothing_the_engine_does_all_the_time_walks_through_the_rollouts_there_are():
    plan()
    worker = take_lease(seats=2)
    with CaptureQueriesContext(connection) as captured:
        work, _ = fetch_work(
            lease=worker.pk,
            seats=2,
            in_use=InUse([], lease=worker.pk, claiming=[(worker.pk, "")]),
            reports={},
            started=set(),
            settings_in_use=Settings(open_outbound(), lambda *_: None, JudgeSeats(), Throttles()),
            reservations=Reservations(),
        )
        record_batch(events=[], ends=[end(one.claim) for one in work], now=timezone.now())
        renew_lease(worker_id=worker.pk, vitals=Vitals())
        release_unknown(worker_id=worker.pk, known=set(), unknown_before=set())
        reap_leases()
        release_lease(worker_id=worker.pk)
    assert len(work) == 2
    read = {index for query in captured for index in indexes_of(query["sql"]) if "rollouts_rollout" in query["sql"]}
    assert read == NARROW


def indexes_of(sql: str) -> set[str]:
    """By which indexes SQLite reads the rollouts in one statement; `SCAN` where it reads the table."""
    if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)\b", sql):
        return set()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        lines = [line for *_, line in cursor.fetchall() if re.match(r"(SCAN|SEARCH) (rollouts_rollout|queued)\b", line)]
    found = [re.search(r"USING (?:COVERING )?(?:INDEX |INTEGER )(\w+)", line) for line in lines]
    return {match[1] if match else "SCAN" for match in found}
