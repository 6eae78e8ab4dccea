"""Bodies that no honest client sends are refused, never broken on."""

import json

import pytest

from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db

BODIES = [
    b"",
    b"[]",
    b"null",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b"NaN",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    json.dumps({"slug": "a\x00b", "name": "\x00"}).encode(),
    json.dumps({"slug": "../../etc", "name": "x" * 10_000}).encode(),
    json.dumps({"slug": 10**30, "name": {"a": 1}, "max_tries": 10**30, "concurrency": -1}).encode(),
    json.dumps({"slug": "a", "name": "a", "collection": 10**30, "rollout": 10**30, "seq": 10**30}).encode(),
    b'{"slug": "a", "name": "a", "call_timeout": 1e999, "time_limit": 1e999, "margin": 1e999}',
    b'{"slug": "a", "name": "a", "concurrency": 99999999999999999999, "max_steps": 40000}',
]
WRITES = [
    "datasets/",
    "environments/",
    "policy-models/",
    "agents/",
    "collections/",
    "pair-sets/",
    "exports/",
    "comments/",
]


@pytest.mark.parametrize("url", WRITES)
def test_a_hostile_body_is_a_problem(engineer, url):
    for body in BODIES:
        answer = engineer.post(f"/api/v1/{url}", body, content_type="application/json")
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json"), body[:80]


def test_numbers_past_what_a_column_holds_are_refused(engineer):
    rollout = make_rollout(make_collection())
    for seq in [-1, 2**63, 10**30, 1.5, "x"]:
        body = {"rollout": rollout.pk, "text": "ok", "seq": seq}
        answer = engineer.post("/api/v1/comments/", json.dumps(body), content_type="application/json")
        assert (answer.status_code, seq) == (400, seq)
