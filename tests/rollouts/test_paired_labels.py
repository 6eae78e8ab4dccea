"""Paired differences by split and tag, against figures worked out in Python."""

import statistics

import pytest

from apps.gym.metrics.pass_at_k import pass_at_k
from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.paired_labels import contrast_by
from apps.rollouts.models import Collection
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db

ONE = [[1.0, 0.0], [0.0, 0.0], [0.5, 1.0], [1.0, 1.0], [0.0, 0.25], [1.0, 0.0]]
OTHER = [[1.0, 1.0], [0.0, 1.0], [1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.5]]


@pytest.fixture
def pair() -> tuple[Collection, Collection]:
    dataset = make_dataset([make_row(str(number)) for number in range(6)])
    tasks = list(dataset.latest_version().tasks.order_by("index"))
    for number, task in enumerate(tasks):
        task.split = "train" if number < 5 else "test"
        task.tags_text = "\neven\nall\n" if number % 2 == 0 else "\nall\n"
        task.save()
    made = []
    for rewards in (ONE, OTHER):
        collection = make_collection(dataset=dataset)
        for task, group in zip(tasks, rewards, strict=True):
            for reward in group:
                make_rollout(collection, task=task, reward=reward, trace=[])
        made.append(collection)
    return made[0], made[1]


def expected(places: list[int]) -> list[float]:
    return [statistics.fmean(OTHER[place]) - statistics.fmean(ONE[place]) for place in places]


def test_the_difference_of_all_tasks_equals_that_of_the_comparison(pair):
    [found] = contrast_by(*pair, "all")
    whole = contrast_collections(*pair)
    assert found.reward.interval == pytest.approx(whole.interval)
    assert (found.reward.mean, found.reward.other_mean) == (whole.mean_reward, whole.other_mean_reward)
    assert found.reward.tasks == 6


def test_splits_and_tags_have_their_own_differences(pair):
    by_split = {each.label: each.reward for each in contrast_by(*pair, "split")}
    assert {name: each.tasks for name, each in by_split.items()} == {"train": 5, "test": 1}
    assert by_split["train"].interval.mean == pytest.approx(statistics.fmean(expected([0, 1, 2, 3, 4])))
    assert by_split["test"].interval is None
    by_tag = {each.label: each.reward for each in contrast_by(*pair, "tag")}
    assert {name: each.tasks for name, each in by_tag.items()} == {"all": 6, "even": 3}
    assert by_tag["even"].other_mean == pytest.approx(statistics.fmean([1.0, 1.0, 0.0]))


@pytest.mark.parametrize("k", [1, 2])
def test_pass_at_k_covers_tasks_with_k_attempts_in_both(pair, k):
    [found] = contrast_by(*pair, "all", k=k)
    places = [place for place in range(6) if min(len(ONE[place]), len(OTHER[place])) >= k]
    chances = [[pass_at_k(len(side[place]), side[place].count(1.0), k) for place in places] for side in (ONE, OTHER)]
    assert found.pass_at_k.tasks == len(places)
    assert found.pass_at_k.mean == pytest.approx(statistics.fmean(chances[0]))
    assert found.pass_at_k.other_mean == pytest.approx(statistics.fmean(chances[1]))
    steps = [other - one for one, other in zip(*chances, strict=True)]
    half = found.pass_at_k.interval.high - found.pass_at_k.interval.mean
    # The 97.5 % quantile of t with four or five degrees of freedom.
    quantile = {4: 2.7764451051977934, 5: 2.570581835636314}[len(places) - 1]
    assert half == pytest.approx(quantile * statistics.stdev(steps) / len(places) ** 0.5, rel=1e-3)


def test_a_collection_with_itself_gives_its_means(pair):
    [found] = contrast_by(pair[0], pair[0], "all")
    assert found.reward.mean == found.reward.other_mean == pytest.approx(statistics.fmean(map(statistics.fmean, ONE)))


def test_tasks_without_tags_have_an_empty_label(pair):
    pair[0].version.tasks.update(tags_text="")
    assert [each.label for each in contrast_by(*pair, "tag")] == [""]
