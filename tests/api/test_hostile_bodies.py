"""Bodies that no honest client sends are refused, never broken on."""

import json

import pytest

from apps.tasks.models import Upload
from tests.factories import make_collection, make_dataset, make_rollout

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


def test_numbers_beyond_a_column_are_refused(engineer):
    rollout = make_rollout(make_collection())
    for seq in [-1, 2**63, 10**30, 1.5, "x"]:
        body = {"rollout": rollout.pk, "text": "ok", "seq": seq}
        answer = engineer.post("/api/v1/comments/", json.dumps(body), content_type="application/json")
        assert (answer.status_code, seq) == (400, seq)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
@pytest.mark.parametrize(
    ("url", "field", "wrap", "pointer"),
    [
        ("policy-models/", "sampling", lambda text: {"a": 1, "stop": ["x", text]}, "/sampling/stop/1"),
        ("policy-models/", "sampling", lambda text: {text: 1}, "/sampling"),
        ("policy-models/", "name", lambda text: text, "/name"),
        ("agents/", "examples", lambda text: [{"role": "user", "content": text}], "/examples/0/content"),
        ("collections/", "sampling", lambda text: {"a/b": {"c": text}}, "/sampling/a~1b/c"),
        ("exports/", "filters", lambda text: {"min_reward": text}, "/filters/min_reward"),
        ("datasets/", "name", lambda text: text, "/name"),
        ("comments/", "text", lambda text: text, "/text"),
    ],
)
def test_unstorable_text_is_named_with_its_place(engineer, url, field, wrap, pointer, text):
    answer = engineer.post(f"/api/v1/{url}", json.dumps({field: wrap(text)}), content_type="application/json")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert (answer.status_code, pointers.count(pointer)) == (400, 1)


def test_the_name_of_an_uploaded_file_is_made_storable(engineer):
    dataset = make_dataset()
    answer = engineer.post(
        f"/api/v1/datasets/{dataset.slug}/uploads/parts/",
        json.dumps({"filename": "rows.jsonl"}),
        content_type="application/json",
    )
    assert answer.json()["filename"] == "rows.jsonl"
    answer = engineer.post(
        f"/api/v1/datasets/{dataset.slug}/uploads/?wait=true&filename=a%00b.jsonl",
        b"{}",
        content_type="application/x-ndjson",
    )
    assert Upload.objects.get(pk=answer.json()["upload"]).filename == "a b.jsonl"


def test_a_plan_dearer_than_anything_is_refused_and_not_broken_on(engineer):
    collection = make_collection()
    for cost in (1.7e308, 1e13):
        answer = engineer.patch(
            f"/api/v1/collections/{collection.pk}/", json.dumps({"max_cost": cost}), content_type="application/json"
        )
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/max_cost")


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_an_integer_beyond_64_bits_is_named_with_its_place(engineer, number):
    body = {"sampling": {"stop": [1, number]}}
    answer = engineer.post("/api/v1/collections/estimate/", json.dumps(body), content_type="application/json")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert (answer.status_code, pointers.count("/sampling/stop/1")) == (400, 1)


@pytest.mark.parametrize("body", ['{"slug":"a","name":"A","name":"B"}', '{"slug":"a","sampling":{"name":1,"name":2}}'])
def test_a_duplicate_key_in_an_object_is_refused(engineer, body):
    refused = engineer.post("/api/v1/agents/", body, content_type="application/json")
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], error["code"]) == (400, "", "duplicate_key")
    assert "“name”" in error["message"]
    assert engineer.get("/api/v1/agents/a/").status_code == 404
