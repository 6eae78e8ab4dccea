"""Earlier attempts of a rollout, for scripts."""

import pytest

from apps.gym.traces.events import ErrorRaised, Prompt, encode_event, event_kind
from apps.gym.traces.items import message
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


@pytest.fixture
def rollout():
    """The first attempt failed, the second lost its worker, the third completed."""
    rollout = make_rollout(make_collection(), attempt=3, failures=1, lost=1)
    prompt = Prompt(items=[message("user", "hi")])
    for attempt, events in {1: [prompt, ErrorRaised(kind="policy_error", message="503")], 2: [prompt]}.items():
        for seq, event in enumerate(events):
            TraceEvent.objects.create(
                rollout=rollout, attempt=attempt, seq=seq, kind=event_kind(event), payload=encode_event(event)
            )
    return rollout


def test_every_attempt_has_its_outcome(viewer, rollout):
    attempts = viewer.get(f"/api/v1/rollouts/{rollout.pk}/attempts/").json()
    told = [(each["attempt"], each["events"], each["outcome"], each["error_kind"]) for each in attempts]
    assert told == [(1, 2, "failed", "policy_error"), (2, 1, "cut_off", "worker_lost"), (3, 6, "completed", "")]
    assert attempts[0]["message"] == "503"


def test_the_trace_of_an_earlier_attempt_is_read(viewer, rollout):
    url = f"/api/v1/rollouts/{rollout.pk}/trace/"
    earlier = viewer.get(url, {"attempt": 1}).json()
    assert (earlier["attempt"], [event["kind"] for event in earlier["events"]]) == (1, ["prompt", "error"])
    latest = viewer.get(url).json()
    assert (latest["attempt"], len(latest["events"])) == (3, 6)
    assert viewer.get(url, {"attempt": 9}).json()["events"] == []


def test_a_trace_is_followed_by_the_last_event_seen(viewer, rollout):
    url = f"/api/v1/rollouts/{rollout.pk}/trace/"
    assert [event["seq"] for event in viewer.get(url, {"after": 3}).json()["events"]] == [4, 5]


@pytest.mark.parametrize("query", [{"attempt": "x"}, {"after": "-1"}, {"attempt": "9" * 30}, {"atempt": "1"}])
def test_a_query_that_makes_no_sense_is_refused(viewer, rollout, query):
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/trace/", query)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:gymweb:problem:bad-query")


def test_a_rollout_counts_what_failed_was_lost_and_cost(viewer, rollout):
    shown = viewer.get(f"/api/v1/rollouts/{rollout.pk}/").json()
    assert (shown["attempt"], shown["failures"], shown["lost"], shown["cost"]) == (3, 1, 1, 0.0)
