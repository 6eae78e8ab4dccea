"""Reward by version, against the same figures worked out by hand."""

from statistics import fmean

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.rollouts.metrics.model_versions import track_versions
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row
from tests.interval_of import interval_of

pytestmark = pytest.mark.django_db


def add(collection, task_number, version, *rewards):
    task = collection.version.tasks.get(index=task_number)
    return [make_rollout(collection, task=task, model_version=version, reward=value, trace=[]) for value in rewards]


def test_versions_are_ordered_by_first_appearance():
    collection = make_collection()
    earliest, *_ = add(collection, 0, "step-200", 1.0, 0.0)
    *_, latest = add(collection, 1, "step-200", 1.0, 1.0)
    add(collection, 0, "step-100", 0.25)
    second, first = track_versions(policy_model=collection.policy_model)
    assert (second.version, second.rollouts, second.tasks, second.solved, second.mean_reward) == (
        "step-200",
        4,
        2,
        3,
        0.75,
    )
    assert second.confidence is None  # two tasks
    assert (second.first_at, second.last_at) == (earliest.finished_at, latest.finished_at)
    assert (first.version, first.mean_reward, first.confidence, first.tasks) == ("step-100", 0.25, None, 1)


def test_only_completed_rollouts_with_a_reward_of_this_model_count():
    collection = make_collection()
    add(collection, 0, "v1", 0.5)
    make_rollout(collection, trace=[], status="failed", reward=None, error_kind="policy_error", stop_reason="")
    make_rollout(collection, trace=[], reward=None)
    add(make_collection(), 0, "v1", 1.0)
    (only,) = track_versions(policy_model=collection.policy_model)
    assert (only.rollouts, only.mean_reward) == (1, 0.5)


def test_one_collection_can_be_looked_at_alone():
    model = make_policy_model()
    one, other = make_collection(policy_model=model), make_collection(policy_model=model)
    add(one, 0, "v1", 0.0)
    add(other, 0, "v1", 1.0)
    add(other, 1, "v2", 1.0)
    found = [[(each.version, each.mean_reward) for each in track_versions(policy_model=model, collection=chosen)]
             for chosen in (None, one, other)]  # fmt: skip
    assert found == [[("v1", 0.5), ("v2", 1.0)], [("v1", 0.0)], [("v1", 1.0), ("v2", 1.0)]]


def test_a_model_without_rewards_has_no_versions():
    assert track_versions(policy_model=make_policy_model()) == []


def test_it_takes_as_many_queries_for_many_versions_as_for_one():
    collection = make_collection()
    counts = []
    for number in range(3):
        add(collection, 0, f"v{number}", 1.0)
        with CaptureQueriesContext(connection) as queries:
            assert len(track_versions(policy_model=collection.policy_model)) == number + 1
        counts.append(len(queries))
    assert counts == [2, 2, 2]


rewards = st.floats(-5, 5, width=32) | st.sampled_from([0.0, 1.0, 1e6, 1e6 + 1])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "b"]), rewards), max_size=18))
def test_the_figures_equal_single_rewards(attempts):
    collection = make_collection(dataset=make_dataset([make_row(str(number)) for number in range(6)]))
    tasks = list(collection.version.tasks.order_by("index"))
    Rollout.objects.bulk_create(
        Rollout(
            collection=collection,
            task=tasks[task],
            repeat=repeat,
            status="completed",
            attempt=1,
            finished_at=timezone.now(),
            stop_reason="answered",
            model_version=version,
            reward=reward,
        )
        for repeat, (task, version, reward) in enumerate(attempts)
    )
    found = {each.version: each for each in track_versions(policy_model=collection.policy_model)}
    assert list(found) == list(dict.fromkeys(version for _, version, _ in attempts))
    for version, each in found.items():
        mine = [(task, reward) for task, said, reward in attempts if said == version]
        mean = fmean(reward for _, reward in mine)
        groups = [group for task in range(6) if (group := [reward for of, reward in mine if of == task])]
        assert each.mean_reward == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert each.solved == sum(reward >= 1.0 for _, reward in mine)
        interval = interval_of(groups)
        assert each.confidence == (interval and pytest.approx(interval, rel=1e-6, abs=1e-6))
