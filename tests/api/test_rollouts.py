"""Traces are given as they were recorded."""

import orjson
import pytest

from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def test_a_trace_is_given_in_order_as_it_was_recorded(viewer):
    rollout = make_rollout(make_collection())
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/trace/")
    events = answer.json()["events"]
    assert [event["seq"] for event in events] == [0, 1, 2, 3, 4, 5]
    assert [event["kind"] for event in events] == [
        "session",
        "prompt",
        "model_call",
        "tool_result",
        "model_call",
        "verification",
    ]
    stored = TraceEvent.objects.order_by("seq").values_list("payload", flat=True)
    assert [event["event"] for event in events] == [orjson.loads(payload) for payload in stored]
    assert answer.json()["attempt"] == rollout.attempt
    assert answer.headers["Content-Type"] == "application/json"


def test_only_the_latest_attempt_is_shown(viewer):
    rollout = make_rollout(make_collection(), attempt=2)
    TraceEvent.objects.create(rollout=rollout, attempt=1, seq=0, kind="error", payload='{"type":"error"}')
    events = viewer.get(f"/api/v1/rollouts/{rollout.pk}/trace/").json()["events"]
    assert events[0]["kind"] == "session"


def test_the_filter_of_the_page_is_taken_in_words(viewer):
    collection = make_collection()
    good, bad = make_rollout(collection, reward=0.9), make_rollout(collection, reward=0.1)

    def shown(q: str) -> list[int]:
        return [row["id"] for row in viewer.get("/api/v1/rollouts/", {"q": q}).json()["results"]]

    assert shown("reward:>0.5") == [good.pk]
    assert shown(f"-reward:>0.5 collection:{collection.pk}") == [bad.pk]
    assert shown(f"model:{collection.policy_model.slug[:3]}*") == [bad.pk, good.pk]


def test_a_filter_that_is_not_understood_is_refused_with_its_place(viewer):
    refused = viewer.get("/api/v1/rollouts/", {"q": "status:failed rewrd:1"})
    (error,) = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], error["code"]) == (400, "?q", "unknown")
    assert error["message"].startswith("At character 15: Nothing is filtered by “rewrd”. Do you mean reward:?")
    assert viewer.get("/api/v1/rollouts/", {"q": "collection__created_by__password:x"}).status_code == 400
