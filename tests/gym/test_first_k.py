"""Figures of the first k attempts, worked out by hand for each kind of reward."""

import random

import pytest

from apps.gym.metrics.best_of_k import mean_best_of_k
from apps.gym.metrics.first_k import combine_ordered, figures_of_first, order_attempts


def figures_of(*groups):
    return figures_of_first(order_attempts([[(reward, "") for reward in group] for group in groups]))


def column(figures, name):
    return [getattr(each, name) for each in figures]


def test_rewards_of_0_and_1():
    figures = figures_of([1.0, 0.0], [0.0, 0.0])
    assert column(figures, "k") == [1, 2]
    assert column(figures, "average") == [0.5, 0.25]
    # pass@1 over all draws, not over the first attempts.
    assert column(figures, "best") == [0.25, 0.5]
    # The runs have the means 0.5 and 0.
    assert column(figures, "std_across_runs") == [None, pytest.approx(0.5 / 2**0.5)]
    assert column(figures, "error_across_runs") == [None, pytest.approx(0.25)]
    # The standard deviations of the tasks are 1/√2 and 0.
    assert column(figures, "mean_std") == [None, pytest.approx(0.5 / 2**0.5)]


def test_partial_rewards_have_the_best_of_the_first_k():
    figures = figures_of([0.25, 0.75, 0.5], [0.5, 0.25, 1.0])
    assert column(figures, "average") == [0.375, pytest.approx(0.4375), pytest.approx((0.5 + 1.75 / 3) / 2)]
    assert column(figures, "best") == [0.375, 0.625, 0.875]


def test_negative_rewards_are_not_clipped():
    figures = figures_of([-1.0, -0.5])
    assert column(figures, "average") == [-1.0, -0.75]
    assert column(figures, "best") == [-1.0, -0.5]


def test_one_task_of_0_and_1_beside_one_of_negative_rewards():
    # The first has pass@1 of ½, the second its first reward.
    assert column(figures_of([0.0, 1.0], [-1.0, 1.0]), "best") == [-0.25, 1.0]


def test_tasks_with_fewer_attempts_count_with_all_of_them():
    figures = figures_of([1.0, 1.0, 0.0], [0.0])
    assert column(figures, "average") == [0.5, 0.5, pytest.approx(1 / 3)]
    # Only the first task has two attempts.
    assert column(figures, "best") == [pytest.approx((2 / 3 + 0) / 2), 1.0, 1.0]
    # The runs have the means 0.5, 1 and 0.
    assert column(figures, "std_across_runs") == [None, pytest.approx(0.125**0.5), pytest.approx(0.5)]
    assert column(figures, "mean_std") == [None, 0.0, pytest.approx((1 / 3) ** 0.5)]


def test_answers_vote_in_order():
    figures = figures_of_first(
        order_attempts(
            [
                [(1.0, "4"), (0.0, "5"), (0.0, "5"), (0.0, "")],
                [(0.0, ""), (1.0, "x"), (0.5, "y"), (0.5, "y")],
            ]
        )
    )
    # The first task: 4 wins, tie of 4 and 5, 5 wins. The second: no answer, x wins, tie of x and y, y wins.
    assert column(figures, "majority") == [0.5, 0.75, 0.375, 0.25]
    assert column(figures, "no_answer") == [0.5, 0.25, pytest.approx(1 / 6), 0.25]


def test_equal_answers_with_different_rewards_are_different_votes():
    figures = figures_of_first(order_attempts([[(1.0, "4"), (0.0, "4"), (0.0, "4")]]))
    assert column(figures, "majority") == [1.0, 0.5, 0.0]


def test_parts_of_the_tasks_add_up_to_the_whole():
    draw = random.Random(4)
    groups = [
        [(draw.choice([0.0, 1.0, 0.25, -1.0]), draw.choice(["", "a", "b"])) for _ in range(draw.randint(1, 7))]
        for _ in range(60)
    ]
    whole = order_attempts(groups)
    parts = combine_ordered([order_attempts(groups[:7]), order_attempts([]), order_attempts(groups[7:])])
    for one, other in zip(figures_of_first(whole), figures_of_first(parts), strict=True):
        for name in ("k", "average", "best", "majority", "no_answer", "std_across_runs", "mean_std"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-12)
    assert mean_best_of_k(whole.ranks) == pytest.approx(mean_best_of_k(parts.ranks))


def test_nothing_has_no_figures():
    assert figures_of_first(order_attempts([])) == []
