"""Looking for work costs the same however many rollouts have ended."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.rollouts.claiming import _claimable
from apps.rollouts.models import Collection, Rollout
from tests.factories import make_collection, make_rollout

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
    assert [(one.collection_id, one.lost) for one in _claimable("")] == [(lost.pk, 2), (fresh.pk, 0)]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's plan")
def test_only_the_index_of_queued_rows_is_read():
    make_rollout(make_collection(), **WAITING)
    with CaptureQueriesContext(connection) as captured:
        _claimable("")
    [query] = captured
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        lines = [line for *_, line in cursor.fetchall() if re.search(r"\bU0\b", line)]
    assert [re.sub(r" \(.*", "", line) for line in lines] == ["SEARCH U0 USING INDEX rollout_queue"]
