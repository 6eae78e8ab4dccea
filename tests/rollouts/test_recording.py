"""How events reach the database: in few statements, none of which holds many large events at once."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.rollouts.engine.recording import record_batch
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL is sent events one after the other")
@pytest.mark.parametrize(("sizes", "statements"), [([10] * 600, 3), ([5_000_000] * 4, 4), ([10, 20_000_000, 10], 3)])
def test_large_events_are_stored_in_statements_of_their_own(sizes, statements):
    rollout = make_rollout(make_collection())
    events = [(rollout.pk, 2, seq, "prompt", "x" * size, None) for seq, size in enumerate(sizes)]
    with CaptureQueriesContext(connection) as queries:
        record_batch(events=events, ends=[], now=timezone.now())
    inserts = [query for query in queries if query["sql"].startswith("INSERT INTO rollouts_traceevent")]
    assert len(inserts) == statements
    stored = TraceEvent.objects.filter(rollout=rollout, attempt=2).order_by("seq")
    assert [len(payload) for payload in stored.values_list("payload", flat=True)] == sizes
