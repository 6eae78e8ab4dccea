"""PATCH ignores read-only fields that are unchanged since the GET, and refuses changed ones."""

import pytest

from apps.api.framework.declared_fields import suggest_name
from apps.tasks.models import Task
from tests.factories import make_collection, make_dataset, make_row

pytestmark = pytest.mark.django_db


def addresses():
    dataset = make_dataset(rows=[make_row()])
    yield f"/api/v1/datasets/{dataset.slug}/"
    yield f"/api/v1/tasks/{Task.objects.get().pk}/"
    yield f"/api/v1/collections/{make_collection().pk}/"


@pytest.mark.parametrize("kind", ["datasets", "tasks", "collections"])
def test_a_shown_object_can_be_sent_back(engineer, kind):
    (address,) = (one for one in addresses() if f"/{kind}/" in one)
    shown = engineer.get(address).json()
    answer = engineer.patch(address, shown, content_type="application/json")
    assert (answer.status_code, answer.json().keys() - shown.keys()) == (200, set())
    wrong = engineer.patch(address, {**shown, "id": shown["id"] + 1}, content_type="application/json")
    assert wrong.status_code == 400
    assert [(one["pointer"], one["code"]) for one in wrong.json()["errors"]] == [("/id", "read_only")]


def test_changing_a_read_only_name_is_refused_with_the_remedy(engineer):
    _, address, collection = addresses()
    [error] = engineer.patch(address, {"is_retired": True}, content_type="application/json").json()["errors"]
    assert (error["pointer"], error["code"]) == ("/is_retired", "read_only")
    assert "Did you mean “retired”" in error["message"]
    # What a collection counts may have moved on since it was read.
    moved = engineer.patch(collection, {"completed": 99, "priority": 3}, content_type="application/json")
    assert (moved.status_code, moved.json()["priority"]) == (200, 3)


@pytest.mark.parametrize(
    ("name", "meant"), [("min_reward", "reward_min"), ("rewarde", "rewarded"), ("reapeats", "repeats")]
)
def test_a_hint_knows_the_same_words_in_another_order(name, meant):
    assert suggest_name(name, ["rewarded", "reward_min", "reward_max", "repeats"]) == f"Did you mean “{meant}”?"
