"""The truth lives in the database: rows that make no sense cannot be written."""

import pytest
from django.db import IntegrityError, transaction

from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "failed", "reward": 0.0, "error_kind": "policy_error"},
        {"status": "failed", "reward": None},
        {"status": "completed", "error_kind": "policy_error"},
        {"status": "completed", "stop_reason": ""},
        {"status": "running", "reward": None},
        {"status": "queued", "reward": None, "lease": 1},
    ],
)
def test_a_row_that_makes_no_sense_cannot_be_written(fields):
    collection = make_collection()
    with pytest.raises(IntegrityError), transaction.atomic():
        make_rollout(collection, trace=[], **fields)


def test_a_repeat_of_a_task_exists_once():
    collection = make_collection()
    first = make_rollout(collection)
    with pytest.raises(IntegrityError), transaction.atomic():
        make_rollout(collection, task=first.task, repeat=first.repeat)


def test_a_trace_is_read_back_unchanged():
    rollout = make_rollout(make_collection())
    kinds = [type(event).__name__ for event in Rollout.objects.get().trace()]
    assert kinds == ["SessionOpened", "Prompt", "ModelCall", "ToolResult", "ModelCall", "Verification"]
    assert rollout.trace()[-1].reward == 1.0
