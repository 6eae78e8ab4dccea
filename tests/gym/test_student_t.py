"""The one-sided t-test of `gymweb gate`. Expected values are those of SciPy 1.17.1 (scipy.stats)."""

import random
import statistics

import pytest

from apps.gym.metrics.student_t import lower_tail, mean_below_zero


def p_value(differences: list[float]) -> float:
    mean = statistics.fmean(differences)
    return mean_below_zero(len(differences), mean, sum((each - mean) ** 2 for each in differences))


@pytest.mark.parametrize(
    ("value", "freedom", "expected"),
    [
        (-2.5, 4, 0.03338327240599407),
        (0.0, 9, 0.5),
        (1.3, 1, 0.7912855998398473),
        (-1.96, 1000, 0.025136592477874368),
        (-8, 30, 3.1329112378503795e-09),
        (3.1, 7, 0.9913388552872513),
        (-40, 12, 1.925614790386016e-14),
    ],
)
def test_the_lower_tail_equals_scipy(value, freedom, expected):
    assert lower_tail(value, freedom) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.1, -0.2, 0.0, -0.3, -0.1], 0.11509982054024942),
        ([-0.5, -0.25, 0.0, 0.25, -0.5, -0.75, 0.0, 0.1, -0.2, -0.4], 0.025046594579256717),
        ([0.2, 0.1, 0.3, 0.25, 0.0, 0.1], 0.9911756514358285),
        ([1e-3, -1e-3, 2e-3, 0, -5e-3, 1e-3, 0], 0.3762047163203999),
    ],
)
def test_the_p_value_equals_scipy(differences, expected):
    assert p_value(differences) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("difference", "expected"), [(0.0, 1.0), (0.25, 1.0), (-0.25, 0.0)])
def test_equal_differences_are_certain(difference, expected):
    assert p_value([difference] * 8) == expected


def test_equal_collections_fail_rarely():
    """1,000 seeded pairs of equal collections: 30 tasks of different difficulty, four attempts with rewards 0 or 1."""
    draw = random.Random(23)
    failed = 0
    for _ in range(1_000):
        chances = [draw.betavariate(1, 1) for _ in range(30)]
        sides = [[sum(draw.random() < chance for _ in range(4)) / 4 for chance in chances] for _ in range(2)]
        failed += p_value([candidate - baseline for baseline, candidate in zip(*sides, strict=True)]) < 0.05
    assert 20 <= failed <= 70
