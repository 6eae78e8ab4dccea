"""What became of each attempt, where the row and its events together say it."""

import pytest

from apps.gym.traces.events import ErrorRaised, encode_event
from apps.rollouts.metrics.attempt_history import read_attempts
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db

OPEN = {"reward": None, "stop_reason": "", "trace": []}


def told(rollout):
    return [(each.attempt, each.outcome, each.reason) for each in read_attempts(rollout)]


def test_one_that_was_never_claimed_has_none():
    assert told(make_rollout(make_collection(), status="queued", attempt=0, finished_at=None, **OPEN)) == []


def test_one_that_runs_for_the_second_time_after_it_lost_its_worker():
    rollout = make_rollout(make_collection(), status="running", lease=1, attempt=2, lost=1, finished_at=None, **OPEN)
    assert told(rollout) == [(1, "cut_off", "worker lost"), (2, "running", "running")]


def test_one_that_its_worker_gave_back_waits():
    rollout = make_rollout(make_collection(), status="queued", attempt=1, finished_at=None, **OPEN)
    assert told(rollout) == [(1, "cut_off", "worker lost or shut down")]


def test_one_that_was_queued_again_after_a_failure_waits_and_says_what_failed():
    rollout = make_rollout(make_collection(), status="queued", attempt=1, failures=1, finished_at=None, **OPEN)
    error = ErrorRaised(kind="environment_error", message="503")
    TraceEvent.objects.create(rollout=rollout, attempt=1, seq=0, kind="error", payload=encode_event(error))
    assert told(rollout) == [(1, "failed", "environment_error")]


def test_one_that_lost_its_worker_three_times_has_failed():
    rollout = make_rollout(
        make_collection(), status="failed", attempt=3, lost=3, error_kind="worker_lost", error_message="Lost.", **OPEN
    )
    assert told(rollout) == [(number, "cut_off", "worker lost") for number in (1, 2, 3)]
