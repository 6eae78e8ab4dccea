import pytest

from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.task_changes import Cursor, find_extreme_rollouts, list_changes
from apps.rollouts.models import Collection
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db


def two(*rewards: tuple[list[float], list[float]]) -> tuple[Collection, Collection]:
    """For each task what both collections got."""
    dataset = make_dataset([make_row(f"No {number}") for number in range(len(rewards))])
    one, other = make_collection(dataset=dataset), make_collection(dataset=dataset)
    for task, sides in zip(dataset.tasks.order_by("index"), rewards, strict=True):
        for collection, given in zip((one, other), sides, strict=True):
            for reward in given:
                make_rollout(collection, task=task, reward=reward, trace=[])
    return one, other


MIXED = [([1.0], [0.0]), ([0.5], [0.25]), ([0.0], [1.0]), ([0.25], [0.75]), ([1.0], [1.0]), ([1.0, 0.0], [0.0, 0.25])]


@pytest.mark.parametrize(
    ("which", "differences"),
    [
        ("regressed", [-1.0, -0.375, -0.25]),
        ("improved", [1.0, 0.5]),
        ("lost", [-1.0, -0.375]),
        ("gained", [1.0]),
        ("same", [0.0]),
        ("all", [-1.0, -0.375, -0.25, 0.0, 0.5, 1.0]),
    ],
)
def test_tasks_are_listed_by_outcome_with_the_largest_differences_first(which, differences):
    one, other = two(*MIXED)
    assert [change.difference for change in list_changes(one, other, which)] == differences


@pytest.mark.parametrize("which", ["regressed", "improved", "same"])
def test_a_list_goes_on_after_a_cursor_with_equal_differences_too(which):
    sides = {"regressed": ([1.0], [0.0]), "improved": ([0.0], [1.0]), "same": ([0.5], [0.5])}[which]
    one, other = two(*[sides] * 5)
    seen, cursor = [], None
    for _ in range(3):
        page = list_changes(one, other, which, after=cursor, limit=2)
        seen += [change.task for change in page]
        cursor = Cursor.parse(str(Cursor(page[-1].difference, page[-1].task)))
    assert seen == list(one.version.tasks.order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("text", ["", "x", "1~", "nan~1", "inf~1", "1~x", "~1", "1~99999999999999999999"])
def test_an_invalid_cursor_is_ignored(text):
    assert Cursor.parse(text) is None


def test_the_grid_counts_tasks_by_both_means():
    one, other = two(([0.0], [1.0]), ([0.0], [0.98]), ([0.5], [0.5]), ([0.31], [0.29]))
    cells = contrast_collections(one, other).grid
    assert sorted((round(cell.x, 6), round(cell.y, 6), cell.tasks) for cell in cells) == [
        (0.0, 1.0, 2),
        (0.3, 0.3, 1),
        (0.5, 0.5, 1),
    ]


def test_rewards_beyond_0_and_1_span_their_own_grid():
    one, other = two(([-10.0], [10.0]), ([0.0], [0.0]))
    cells = contrast_collections(one, other).grid
    assert sorted((cell.x, cell.y, cell.tasks) for cell in cells) == [(-10.0, 10.0, 1), (0.0, 0.0, 1)]


def test_collections_without_a_task_in_common_have_an_empty_grid():
    one, other = two(([1.0], []))
    assert contrast_collections(one, other).grid == []


def test_a_regression_is_shown_by_the_best_before_and_the_worst_after():
    one, other = two(([0.5, 1.0, 0.0], [0.25, 0.0]), ([0.0, 0.25], [1.0, 0.5]))
    changes = [*list_changes(one, other, "regressed"), *list_changes(one, other, "improved")]
    rewards = dict(one.rollouts.values_list("pk", "reward")) | dict(other.rollouts.values_list("pk", "reward"))
    shown = [(rewards[mine], rewards[theirs]) for mine, theirs in find_extreme_rollouts(one, other, changes)]
    assert shown == [(1.0, 0.0), (0.0, 1.0)]
