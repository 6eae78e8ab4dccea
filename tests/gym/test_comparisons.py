"""Paired statistics against published examples and by hand."""

import random
from itertools import product

import pytest

from apps.gym.metrics.paired_comparison import MAX_RESAMPLED, mcnemar, paired_bootstrap


def test_mcnemar_of_a_published_example():
    # Agresti, Categorical Data Analysis, 2nd ed., table 10.1: 150 and 86 changed; z² = 17.36, p < 0.0001.
    assert mcnemar(150, 86) == pytest.approx(3.716e-5, rel=0.01)


@pytest.mark.parametrize(("improved", "regressed", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (8, 2, 0.109375)])
def test_mcnemar_by_hand(improved, regressed, p):
    assert mcnemar(improved, regressed) == p == mcnemar(regressed, improved)


def test_mcnemar_counts_every_way_the_changes_can_fall():
    for improved in range(7):
        as_far = [each for each in product((0, 1), repeat=6) if abs(sum(each) - 3) >= abs(improved - 3)]
        assert mcnemar(improved, 6 - improved) == pytest.approx(len(as_far) / 64)


def test_mcnemar_of_many_tasks_goes_on_where_the_exact_sum_stops():
    assert mcnemar(5_100, 4_900) == pytest.approx(mcnemar(5_101, 4_900), rel=0.05)
    with pytest.raises(ValueError, match="cannot be negative"):
        mcnemar(-1, 3)


def test_the_bootstrap_holds_the_true_difference_as_often_as_it_says():
    draw = random.Random(5)
    held = 0
    for seed in range(60):
        found = paired_bootstrap([draw.gauss(0.1, 1) for _ in range(80)], seed=seed)
        assert found is not None
        held += found.low <= 0.1 <= found.high
    assert 51 <= held <= 60  # 57 expected


def test_the_bootstrap_is_the_same_for_the_same_seed_and_agrees_with_the_normal_interval():
    draw = random.Random(1)
    values = [draw.uniform(-1, 1) for _ in range(MAX_RESAMPLED)]
    resampled = paired_bootstrap(values)
    normal = paired_bootstrap([*values, sum(values) / len(values)])
    assert resampled == paired_bootstrap(values)
    assert resampled is not None
    assert normal is not None
    assert (resampled.low, resampled.high) == pytest.approx((normal.low, normal.high), abs=0.002)


def test_the_bootstrap_of_few_tasks_is_that_of_every_possible_sample():
    """Six tasks have 6⁶ samples with replacement: the quantiles of all their means are the reference."""
    differences = [-0.5, 0.0, 0.25, 0.25, 0.75, 1.0]
    means = sorted(sum(sample) / 6 for sample in product(differences, repeat=6))
    exact = (means[int(len(means) * 0.025)], means[int(len(means) * 0.975) - 1])
    for seed in range(5):
        found = paired_bootstrap(differences, seed=seed)
        assert found is not None
        assert (found.low, found.high) == pytest.approx(exact, abs=0.06)
        assert found.mean == pytest.approx(sum(differences) / 6)


def test_one_task_has_no_interval():
    assert paired_bootstrap([0.5]) is None
