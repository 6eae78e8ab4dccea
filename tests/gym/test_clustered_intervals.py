"""Intervals against tables, by hand, and by how often they cover the true mean."""

import random

import pytest

from apps.gym.metrics.clustered_intervals import MIN_TASKS, t_quantile, wilson
from tests.interval_of import interval_of


@pytest.mark.parametrize(("freedom", "table"), [(4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423), (10**6, 1.9600)])
def test_the_quantiles_equal_the_table(freedom, table):
    assert t_quantile(freedom) == pytest.approx(table, abs=1e-3)


def test_the_wilson_interval_of_a_published_example():
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3: 81 of 263, 0 of 20.
    assert wilson(81 / 263, 263, 1.96) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20, 1.96) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_single_attempts_have_the_plain_wilson_interval():
    assert interval_of([[1.0]] * 7 + [[0.0]] * 3) == pytest.approx(wilson(0.7, 10, 1.96), abs=1e-4)


def test_rewards_outside_the_usual_ranges_have_the_t_interval():
    values = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert interval_of([[value] for value in values]) == pytest.approx((0.7001, 2.4599), abs=1e-3)


def test_fewer_than_five_tasks_have_no_interval():
    assert interval_of([[1.0, 0.0]] * (MIN_TASKS - 1)) is None
    assert interval_of([[1.0, 0.0], [0.0]] * MIN_TASKS) is not None


def test_tasks_that_are_always_solved_still_have_an_uncertain_mean():
    low, high = interval_of([[1.0] * 8] * 10)
    assert (low, high) == (pytest.approx(0.66, abs=0.01), 1.0)


def test_equal_partial_rewards_of_few_tasks_have_a_narrow_interval():
    assert interval_of([[0.5]] * 10) == pytest.approx((0.39, 0.61), abs=0.01)
    low, high = interval_of([[0.5]] * 1_000)
    assert high - low < 0.002


def beta(a, b, attempts):
    def group(draw):
        chance = draw.betavariate(a, b)
        return [float(draw.random() < chance) for _ in range(attempts)]

    return group


def partial(draw):
    level = draw.betavariate(0.5, 2)
    return [round(min(1.0, max(0.0, level + draw.gauss(0, 0.1))), 3) for _ in range(4)]


def signed(draw):
    chance = draw.betavariate(4, 1)
    return [1.0 if draw.random() < chance else -1.0 for _ in range(4)]


def ragged(draw):
    chance = draw.betavariate(1, 1)
    return [float(draw.random() < chance) for _ in range(draw.randint(1, 8))]


def unbounded(draw):
    level = draw.gauss(0, 3)
    return [level + draw.gauss(0, 1) for _ in range(4)]


POPULATIONS = {
    "0 or 1, once": (beta(1, 1, 1), 0.5),
    "0 or 1, mostly solved, once": (beta(8, 2, 1), 0.8),
    "0 or 1, four times": (beta(1, 1, 4), 0.5),
    "0 or 1, easy or hard, eight times": (beta(0.5, 0.5, 8), 0.5),
    "0 or 1, mostly unsolved, four times": (beta(0.5, 2, 4), 0.2),
    "0 or 1, mostly solved, four times": (beta(2, 0.3, 4), 2 / 2.3),
    "0 or 1, very few solved, sixteen times": (beta(0.2, 1.8, 16), 0.1),
    "0 or 1, ragged": (ragged, 0.5),
    "partial": (partial, None),
    "-1 or 1": (signed, 0.6),
    "unbounded": (unbounded, 0.0),
}
SAMPLES = 1_200


@pytest.mark.parametrize("tasks", [10, 30])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_interval_covers_the_true_mean_as_often_as_it_says(name, tasks):
    group, mean = POPULATIONS[name]
    draw = random.Random(f"{name} {tasks}")
    if mean is None:
        mean = sum(sum(group(draw)) / 4 for _ in range(40_000)) / 40_000
    intervals = (interval_of([group(draw) for _ in range(tasks)]) for _ in range(SAMPLES))
    covered = sum(low <= mean <= high for low, high in intervals)
    assert covered / SAMPLES >= 0.93
