"""Breakdowns, profiles and contrasts, against figures worked out in Python."""

import statistics

import pytest

from apps.rollouts.metrics.collection_comparison import CannotContrast, contrast_collections
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.labels import FACETS
from apps.rollouts.metrics.task_profiles import BUCKETS, profile_tasks
from apps.rollouts.models import Collection
from apps.tasks.models import Task
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db


def fill(collection, rewards):
    """Rollouts with these rewards for each task, None for one that failed; the counters as the engine has them."""
    for task, given in zip(collection.version.tasks.order_by("index"), rewards, strict=True):
        for reward in given:
            failed = {"status": "failed", "error_kind": "timed_out", "stop_reason": ""} if reward is None else {}
            make_rollout(collection, task=task, reward=reward, trace=[], **failed)
    known = [reward for given in rewards for reward in given if reward is not None]
    Collection.objects.filter(pk=collection.pk).update(rewarded=len(known), reward_sum=sum(known))
    collection.refresh_from_db()
    return collection


@pytest.fixture
def dataset():
    made = make_dataset([make_row(str(n)) for n in range(4)])
    first, second, third, fourth = made.latest_version().tasks.order_by("index")
    for task, split, tags in (
        (first, "train", ["easy", "sums"]),
        (second, "train", ["sums"]),
        (third, "validation", []),
        (fourth, "train", ["easy"]),
    ):
        task.split, task.tags = split, tags
        task.save()
    return made


REWARDS = [[1.0, 1.0, 0.5], [0.0, 1.0], [0.25, None], [None, None]]


def test_splits_have_their_own_figures(dataset):
    train, validation = break_down(fill(make_collection(dataset=dataset), REWARDS), "split").shares
    assert (train.label, train.rollouts, train.rewarded, train.tasks) == ("train", 7, 5, 2)
    assert train.mean_reward == pytest.approx(3.5 / 5)
    assert train.pass_at_1 == pytest.approx((2 / 3 + 1 / 2) / 2)
    spread = (2 * ((2.5 - 3 * 0.7) ** 2 + (1 - 2 * 0.7) ** 2)) ** 0.5 / 5
    assert (train.standard_error, train.confidence) == (pytest.approx(spread), None)
    assert (validation.label, validation.rewarded, validation.mean_reward, validation.confidence) == (
        "validation",
        1,
        0.25,
        None,
    )


def test_a_task_counts_for_each_of_its_tags(dataset):
    shares = {share.label: share for share in break_down(fill(make_collection(dataset=dataset), REWARDS), "tag").shares}
    assert {label: share.rollouts for label, share in shares.items()} == {"easy": 5, "sums": 5, "": 2}
    assert shares["easy"].mean_reward == pytest.approx(2.5 / 3)
    assert (shares["easy"].tasks, shares["sums"].tasks) == (1, 2)


def test_a_facet_without_differences_has_the_figures_of_the_collection(dataset):
    collection = fill(make_collection(dataset=dataset), [[1e6 + 1, 1e6 + 2], [1e6 + 1.5], [1e6], [1e6 + 3]])
    (whole,) = break_down(collection, "model_version").shares
    measured = measure_collection(collection)
    assert whole.mean_reward == pytest.approx(measured.mean_reward, rel=1e-12)
    assert whole.confidence == pytest.approx(measured.confidence, abs=1e-6)


def test_the_labels_with_the_most_rollouts_are_measured_and_the_rest_is_counted(dataset, monkeypatch):
    monkeypatch.setattr("apps.rollouts.metrics.labels.MAX_LABELS", 1)
    collection = fill(make_collection(dataset=dataset), [[1.0], [0.0, 1.0], [0.25, None], [None, None]])
    found = {facet: break_down(collection, facet) for facet in FACETS}
    assert {facet: ([share.label for share in each.shares], each.left_out) for facet, each in found.items()} == {
        "split": (["train"], 1),
        "tag": (["easy"], 2),
        "model_version": ([""], 0),
    }
    assert (found["tag"].shares[0].rollouts, found["tag"].shares[0].mean_reward) == (3, 1.0)


def test_nothing_attempted_has_no_shares(dataset):
    assert break_down(make_collection(dataset=dataset), "tag") == ([], 0)


def test_every_task_has_a_profile(dataset):
    collection = fill(make_collection(dataset=dataset), REWARDS)
    first, second, third, fourth = profile_tasks(collection)
    assert (first.rollouts, first.rewarded, first.solved, first.failed) == (3, 3, 2, 0)
    assert first.std == pytest.approx(statistics.stdev([1, 1, 0.5]))
    assert (first.min_reward, first.max_reward) == (0.5, 1.0)
    assert (fourth.rollouts, fourth.rewarded, fourth.failed, fourth.mean_reward, fourth.std) == (2, 0, 2, None, None)
    found = {bucket: [each.task for each in profile_tasks(collection, bucket=bucket)] for bucket in BUCKETS}
    assert found == {"never": [third.task], "sometimes": [first.task, second.task], "always": []}


def test_profiles_come_page_by_page(dataset):
    collection = fill(make_collection(dataset=dataset), REWARDS)
    everything = [each.task for each in profile_tasks(collection)]
    page = profile_tasks(collection, limit=3)
    assert [each.task for each in [*page, *profile_tasks(collection, after=page[-1].task)]] == everything


def test_two_collections_are_contrasted_by_task(dataset):
    one = fill(make_collection(dataset=dataset), [[1.0, 1.0], [0.0, 0.0], [0.5], [None]])
    other = fill(make_collection(dataset=dataset), [[0.0, 1.0], [1.0, 1.0], [0.5], [1.0]])
    found = contrast_collections(one, other)
    assert (found.tasks, found.improved, found.regressed) == (3, 1, 1)
    assert (found.mean_reward, found.other_mean_reward) == (0.5, pytest.approx(2 / 3))
    assert (found.newly_solved, found.no_longer_solved, found.p_value) == (1, 0, 1.0)
    assert (found.interval, found.permutation_p_value) == (None, 1.0)
    assert [(change.difference, change.mean_reward) for change in found.regressions] == [(-0.5, 1.0)]
    assert [change.difference for change in found.improvements] == [1.0]


def test_the_same_task_of_another_version_is_found_by_its_key(dataset):
    one = fill(make_collection(dataset=dataset), [[1.0], [0.0], [0.5], [None]])
    Task.objects.update(key="")
    for number, task in enumerate(one.version.tasks.order_by("index")):
        Task.objects.filter(pk=task.pk).update(key=f"k{number}")
    version = dataset.versions.create(number=2, state="ready", task_count=2)
    for number in (2, 0):
        Task.objects.create(dataset=dataset, version=version, index=2 - number, row_json="{}", key=f"k{number}")
    other = fill(make_collection(dataset=dataset), [[1.0], [0.75]])
    found = contrast_collections(one, other)
    assert (found.tasks, found.improved, found.regressed) == (2, 1, 1)


def test_the_settings_that_differ_are_named(dataset):
    snapshots = [
        {"agent": {"max_steps": 3, "slug": "a"}, "sampling": {"temperature": 1}},
        {"agent": {"max_steps": 9, "slug": "a"}},
    ]
    one, other = (make_collection(dataset=dataset, snapshot=snapshot) for snapshot in snapshots)
    found = contrast_collections(one, other)
    assert found.differs == {"agent.max_steps": (3, 9), "sampling": ({"temperature": 1}, None)}
    assert (found.tasks, found.mean_reward, found.interval, found.p_value) == (0, None, None, 1.0)


def test_collections_of_different_datasets_are_not_contrasted(dataset):
    with pytest.raises(CannotContrast, match="Choose two collections of the same dataset"):
        contrast_collections(make_collection(dataset=dataset), make_collection())
