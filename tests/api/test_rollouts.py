"""Traces are given as they were recorded."""

import orjson
import pytest

from apps.api.rollouts.rollout_viewsets import ORDERS
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def test_a_trace_has_its_events_in_recorded_order(viewer):
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
    assert [part in error["message"] for part in ("At character 15", "“rewrd”", "Did you mean reward:")] == [True] * 3
    assert viewer.get("/api/v1/rollouts/", {"q": "collection__created_by__password:x"}).status_code == 400


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_pages_of_every_order_hold_every_row_once_with_equals_by_id_and_those_without_a_value_last(viewer, name, sign):
    collection = make_collection()
    fields = {
        "reward": "reward",
        "turns": "turns",
        "tool_calls": "tool_calls",
        "tokens": "output_tokens",
        "duration": "duration",
        "cost": "cost",
    }
    values = (
        [0.25, 1e-7, None, 1.0, 0.25, -3.5, None, 1e100] if name == "reward" else [4, 0, None, 4, 7, None, 4, 2**31 - 1]
    )
    rows = {}
    for repeat, value in enumerate(values):
        ended = (
            {}
            if value is not None
            else {"status": "queued", "reward": None, "stop_reason": "", "trace": [], "finished_at": None}
        )
        given = {fields[name]: value} if value is not None else {}
        rows[make_rollout(collection, repeat=repeat, **({"input_tokens": 0} | given | ended)).pk] = value
    turn = -1 if sign else 1
    by_value = sorted(
        (pk for pk, value in rows.items() if value is not None), key=lambda pk: (turn * rows[pk], turn * pk)
    )
    without = sorted((pk for pk, value in rows.items() if value is None), key=lambda pk: turn * pk)
    seen, url = [], f"/api/v1/rollouts/?limit=3&ordering={sign}{name}"
    while url:
        page = viewer.get(url).json()
        seen += [row["id"] for row in page["results"]]
        url = page["next"]
    assert seen == by_value + without


@pytest.mark.parametrize(
    ("query", "some", "none"),
    [
        ("", True, True),
        ("status=queued", False, True),
        ("status=completed", True, True),
        ("reward_min=0.1", True, False),
        ("rewarded=true", True, False),
        ("rewarded=false", False, True),
        ("q=reward%3A%3E0.5", True, False),
    ],
)
def test_an_order_holds_what_the_filters_leave(viewer, query, some, none):
    collection = make_collection()
    rewarded = make_rollout(collection, reward=0.9).pk
    waiting = make_rollout(collection, repeat=1, status="queued", reward=None, stop_reason="", trace=[]).pk
    unrewarded = make_rollout(collection, repeat=2, reward=None).pk
    wanted = [rewarded] * some + ([waiting] if none and "completed" not in query else [])
    wanted += [unrewarded] if none and "queued" not in query else []
    found = viewer.get(f"/api/v1/rollouts/?ordering=reward&{query}").json()["results"]
    assert [row["id"] for row in found] == wanted


def test_a_cursor_belongs_to_one_order_and_a_misspelt_order_is_told_the_right_one(viewer):
    for repeat in range(2):
        make_rollout(make_collection(), repeat=repeat, reward=0.5)
    cursor = viewer.get("/api/v1/rollouts/?limit=1&ordering=-reward").json()["next_cursor"]
    for other in ("reward", "-cost", "-id"):
        refused = viewer.get("/api/v1/rollouts/", {"ordering": other, "cursor": cursor})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "?cursor")
    misspelt = viewer.get("/api/v1/rollouts/?ordering=-rewrad")
    assert misspelt.status_code == 400
    assert misspelt.json()["errors"][0]["message"].endswith("Did you mean -reward?")
