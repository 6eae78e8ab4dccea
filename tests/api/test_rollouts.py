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
