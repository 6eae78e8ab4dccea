"""Numbers beyond 64 bits, as PostgreSQL writes out what was stored as 1e40, break no page, no file and no undoing."""

import pytest
from asgiref.sync import async_to_sync

from apps.accounts.audit_log import record
from apps.accounts.models import AuditEntry, Role
from apps.reviews.models import Review, Rubric
from tests.factories import make_user
from tests.reviews.queues import annotator, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db
HUGE = 10**40


def read_all(reply) -> str:
    async def read() -> bytes:
        return b"".join([piece async for piece in reply.streaming_content])

    return async_to_sync(read)().decode()


def test_a_score_that_was_stored_is_exported_undone_and_audited(client):
    ann = annotator()
    queue = make_queue(pairs=1, size=1)
    review = judge(queue, ann, scores={"right": True, "clear": 3})
    Review.objects.update(scores={"right": True, "clear": HUGE})
    client.force_login(make_user(Role.ADMIN))
    for name in ("ndjson", "csv"):
        assert "1e+40" in read_all(client.get(f"/api/v1/queues/{queue.pk}/export/?format={name}"))
    client.force_login(ann)
    undone = client.post(f"/api/v1/queues/{queue.pk}/undo/", {"review": review.pk}, "application/json")
    assert (undone.status_code, undone.json()["draft"]["scores"]["clear"]) == (200, 1e40)
    client.force_login(make_user(Role.ADMIN))
    assert "1e+40" in client.get("/audit/").content.decode()
    assert client.get("/api/v1/audit-entries/").status_code == 200


def test_the_log_takes_whatever_number_is_told_it():
    record(user=None, action="test.number", before={"number": HUGE}, numbers=[-HUGE, 10**400, 2**63])
    entry = AuditEntry.objects.get(action="test.number")
    assert (entry.before, entry.detail["numbers"]) == ({"number": 1e40}, [-1e40, "a number beyond 1e308", 2**63])


def test_a_rubric_that_goes_beyond_takes_no_score_beyond(client):
    rubric = make_rubric(criteria=[{"key": "n", "label": "N", "kind": "numeric", "minimum": 0, "maximum": 1e300}])
    assert Rubric.objects.get().criteria[0]["maximum"] == 1e300
    ann = annotator()
    queue = make_queue(pairs=1, size=1, rubric=rubric)
    client.force_login(ann)
    review = client.post(f"/api/v1/queues/{queue.pk}/claim/").json()["id"]
    refused = client.post(
        f"/api/v1/reviews/{review}/submit/", {"token": "t", "scores": {"n": 1e40}}, "application/json"
    )
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/scores/n")
