"""A planned suite has one collection for each dataset, or none."""

import pytest
from django.core.exceptions import ValidationError

from apps.rollouts.models import Collection, Rollout
from apps.rollouts.plans.planning import PlanConflict
from apps.rollouts.plans.suite_plans import plan_suite
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.tasks.models import Suite
from apps.tasks.suite_changes import save_suite
from tests.factories import make_agent, make_dataset, make_policy_model, make_row, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    datasets = [make_dataset([make_row(name) for name in names], slug=names) for names in ("ab", "c")]
    return save_suite(suite=Suite(slug="letters", name="Letters", datasets=datasets), user=None)


@pytest.fixture
def options():
    return {"agent": make_agent(), "policy_model": make_policy_model(name="Qwen"), "repeats": 2, "seed": 7}


def test_each_dataset_gets_a_collection_of_its_latest_version_with_the_same_settings(suite, options):
    user = make_user()
    planned = plan_suite(suite=suite, options=options, user=user)
    assert [one.dataset for one in planned] == suite.datasets
    assert [one.version for one in planned] == [dataset.latest_version() for dataset in suite.datasets]
    assert [(one.state, one.total, one.seed, one.created_by) for one in planned] == [
        ("running", 4, 7, user),
        ("running", 2, 7, user),
    ]
    assert planned[0].name == f"Letters × Qwen: {suite.datasets[0].name}"
    assert Rollout.objects.count() == 6


def test_a_dataset_without_tasks_stops_the_whole_suite(suite, options):
    suite.datasets = [*suite.datasets, make_dataset([], slug="empty")]
    with pytest.raises(NothingToCollect, match=r"^empty: "):
        plan_suite(suite=suite, options=options)
    assert (Collection.objects.count(), Rollout.objects.count()) == (0, 0)


def test_a_setting_that_cannot_be_names_the_dataset(suite, options):
    with pytest.raises(ValidationError) as refused:
        plan_suite(suite=suite, options={**options, "splits": ["test"]})
    assert refused.value.message_dict["splits"][0].startswith("ab: ")
    assert not Collection.objects.exists()


def test_a_plan_with_the_same_key_returns_the_same_collections(suite, options):
    user = make_user()
    once, again = (plan_suite(suite=suite, options=options, user=user, idempotency_key="k") for _ in range(2))
    assert once == again
    with pytest.raises(PlanConflict):
        plan_suite(suite=suite, options={**options, "seed": 8}, user=user, idempotency_key="k")
    assert Collection.objects.count() == 2


def test_a_suite_without_datasets_is_refused(suite, options):
    for dataset in suite.datasets:
        dataset.delete()
    with pytest.raises(NothingToCollect, match="Letters"):
        plan_suite(suite=Suite.objects.get(), options=options)
