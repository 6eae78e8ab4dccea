"""A rubric that was used stays as it was."""

import pytest
from django.core.exceptions import ValidationError

from apps.reviews.models import Rubric
from apps.reviews.reviews.rubric_changes import RubricInUse, delete_rubric, save_rubric
from tests.reviews.queues import CRITERIA, make_queue, make_rubric

pytestmark = pytest.mark.django_db


def test_invalid_input_is_refused_by_field():
    with pytest.raises(ValidationError) as refused:
        save_rubric(rubric=Rubric(slug="new", name="", criteria=[{"kind": "stars"}]), user=None)
    assert set(refused.value.error_dict) == {"slug", "name", "criteria"}


def test_a_used_rubric_is_renamed_but_asks_what_it_asked():
    rubric = make_rubric()
    make_queue(size=1, rubric=rubric)
    rubric.name = "Other"
    assert save_rubric(rubric=rubric, user=None).name == "Other"
    rubric.criteria = CRITERIA[:1]
    with pytest.raises(RubricInUse):
        save_rubric(rubric=rubric, user=None)
    with pytest.raises(RubricInUse):
        delete_rubric(rubric=rubric, user=None)


def test_an_unused_rubric_is_changed_and_deleted():
    rubric = make_rubric()
    rubric.criteria = CRITERIA[:1]
    assert save_rubric(rubric=rubric, user=None).keys == ["right"]
    delete_rubric(rubric=rubric, user=None)
    assert Rubric.objects.count() == 0
