"""The tokens of an attempt over the API: what was captured of each call, and the sequences to train on."""

import pytest

from apps.gym.traces.events import encode_event, event_kind, event_tokens
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout, make_trace
from tests.gym.traces import with_tokens

pytestmark = pytest.mark.django_db


def make_captured(*captured, **fields):
    return make_rollout(make_collection(), trace=with_tokens(make_trace(), *captured), **fields)


def test_calls_come_joined_with_mask_and_logprobs_aligned(viewer):
    rollout = make_captured(([1, 2], [3]), ([1, 2, 3, 4], [5, 6]))
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/tokens/")
    assert answer.headers["Content-Type"] == "application/json"
    call = {"model": "scripted", "version": "", "captured": True, "grammar": False, "note": ""}
    assert answer.json() == {
        "rollout": rollout.pk,
        "attempt": 1,
        "figures": {"calls": 2, "captured": 2, "exact": 1, "segments": 1, "generated": 3, "breaks": []},
        "calls": [
            {"call": 1, "seq": 2, **call, "prompt_tokens": 2, "generated_tokens": 1},
            {"call": 2, "seq": 4, **call, "prompt_tokens": 4, "generated_tokens": 2},
        ],
        "segments": [
            {
                "calls": [1, 2],
                "input_ids": [1, 2, 3, 4, 5, 6],
                "mask": [0, 0, 1, 0, 1, 1],
                "logprobs": [0.0, 0.0, -0.5, 0.0, -0.5, -0.5],
            }
        ],
    }


def test_a_break_is_named_and_starts_a_new_segment(viewer):
    rollout = make_captured(([1, 2], [3]), ([1, 2, 9, 4], [5, 6]))
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/tokens/").json()
    assert answer["figures"]["breaks"] == [{"call": 2, "after": 1, "agreed": 2, "seen": 3, "within": "reply"}]
    assert [segment["calls"] for segment in answer["segments"]] == [[1], [2]]


def test_a_rollout_without_tokens_has_calls_and_no_segment(viewer):
    answer = viewer.get(f"/api/v1/rollouts/{make_rollout(make_collection()).pk}/tokens/").json()
    assert [(call["captured"], call["prompt_tokens"]) for call in answer["calls"]] == [(False, None)] * 2
    assert (answer["figures"]["captured"], answer["segments"]) == (0, [])


def test_an_earlier_attempt_keeps_its_own_tokens(viewer):
    rollout = make_captured(([1], [2]), ([1, 2, 3], [4]), attempt=2)
    earlier = with_tokens(make_trace(tool_call=False), ([7], [8]))
    TraceEvent.objects.bulk_create(
        TraceEvent(
            rollout=rollout,
            attempt=1,
            seq=seq,
            kind=event_kind(event),
            payload=encode_event(event),
            tokens=event_tokens(event),
        )
        for seq, event in enumerate(earlier)
    )
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/tokens/?attempt=1").json()
    assert [segment["input_ids"] for segment in answer["segments"]] == [[7, 8]]
    assert viewer.get(f"/api/v1/rollouts/{rollout.pk}/tokens/?attempt=x").status_code == 400


def test_damaged_tokens_are_a_problem_and_not_a_guess(viewer):
    rollout = make_captured(([1, 2], [3]), ([1, 2, 3, 4], [5, 6]))
    rollout.events.filter(seq=2).update(tokens=b"\1\4")
    answer = viewer.get(f"/api/v1/rollouts/{rollout.pk}/tokens/")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gymweb:problem:tokens-unreadable")


def test_a_rollout_tells_the_version_that_answered_and_is_found_by_it(viewer):
    collection = make_collection()
    rollout = make_rollout(collection, model_version="step-200")
    make_rollout(collection, model_version="step-100")
    found = viewer.get("/api/v1/rollouts/?model_version=step-200").json()["results"]
    assert [(each["id"], each["model_version"]) for each in found] == [(rollout.pk, "step-200")]
