"""Paired statistics against published examples and by hand."""

import random
from itertools import product

import pytest

from apps.gym.metrics.paired_comparison import (
    MAX_PERMUTED,
    interval_from,
    mcnemar,
    permutation_from,
    permutation_test,
)


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


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_the_permutation_test_counts_every_change_of_signs(size):
    draw = random.Random(size)
    differences = [draw.uniform(-1, 2) for _ in range(size)]
    observed = abs(sum(differences))
    sums = [sum(map(float.__mul__, differences, signs)) for signs in product((-1.0, 1.0), repeat=size)]
    expected = sum(abs(each) >= observed - 1e-9 for each in sums) / len(sums)
    assert permutation_test(differences) == pytest.approx(expected)


def test_the_permutation_test_of_a_published_example():
    # Fisher 1935, section 21: Darwin's plants, in eighths of an inch; 1,726 of 32,768 sign changes.
    differences = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert permutation_test(differences) == pytest.approx(1_726 / 32_768)


def test_the_permutation_test_sees_partial_rewards_that_mcnemar_does_not():
    assert permutation_test([0.25] * 10) == pytest.approx(2 / 2**10)
    assert mcnemar(0, 0) == 1.0


def test_the_permutation_test_of_equal_rewards_finds_nothing():
    assert permutation_test([]) == permutation_test([0.0, 0.0]) == permutation_test([0.5, -0.5]) == 1.0
    assert permutation_from(10, 0.0, 0.0) == 1.0


def test_random_sign_changes_and_the_normal_approximation_agree():
    draw = random.Random(3)
    differences = [draw.gauss(0.1, 1) for _ in range(MAX_PERMUTED)]
    mean = sum(differences) / len(differences)
    squares = sum((each - mean) ** 2 for each in differences)
    sampled = permutation_test(differences)
    assert sampled == permutation_test(differences)
    assert sampled == pytest.approx(permutation_from(len(differences), mean, squares), abs=0.02)


def test_the_permutation_test_is_as_rare_as_it_says_without_a_difference():
    draw = random.Random(8)
    found = [permutation_test([draw.gauss(0, 1) for _ in range(12)]) for _ in range(400)]
    assert 8 <= sum(p <= 0.05 for p in found) <= 32  # 20 expected


def test_the_interval_of_a_difference_is_that_of_t():
    # Student 1908, table of additional hours of sleep: mean 1.58, 95 % interval 0.70 to 2.46.
    hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    mean = sum(hours) / 10
    found = interval_from(10, mean, sum((each - mean) ** 2 for each in hours))
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((1.58, 0.7001, 2.4599), abs=1e-3)
    assert interval_from(4, mean, 1.0) is None
