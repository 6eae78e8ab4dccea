"""The figures against brute force and by hand."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.metrics.best_of_k import best_of_k, mean_best_of_k
from apps.gym.metrics.clustered_intervals import standard_error_from
from apps.gym.metrics.pass_at_k import (
    EVERY_K,
    attempt_counts,
    bin_counts,
    histogram_edges,
    mean_average_of_k,
    mean_pass_at_k,
    pass_at_k,
    sample_std,
    solve_buckets,
)


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_solution(shape):
    size, solved, k = shape
    draws = list(combinations([True] * solved + [False] * (size - solved), k))
    assert pass_at_k(size, solved, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_closed_form_in_exact_arithmetic(shape):
    size, solved, k = shape
    exact = 1 - Fraction(comb(size - solved, k), comb(size, k))
    assert pass_at_k(size, solved, k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_of_a_large_group_does_not_overflow():
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)


@pytest.mark.parametrize(("size", "solved", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_an_undefined_pass_at_k_is_refused(size, solved, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(size, solved, k)


def test_pass_at_k_averages_over_groups_of_at_least_k():
    shapes = {(4, 2): 1, (4, 0): 1, (1, 1): 2}
    assert mean_pass_at_k(shapes) == {
        1: pytest.approx((0.5 + 0 + 1 + 1) / 4),
        2: pytest.approx((1 - 1 / 6) / 2),
        3: pytest.approx(0.5),
        4: pytest.approx(0.5),
    }


def test_nothing_measured_gives_nothing():
    assert mean_pass_at_k({}) == {}
    assert solve_buckets({}) == {"never": 0, "sometimes": 0, "always": 0}
    assert sample_std(1, 0.0) is None
    assert standard_error_from(0.0, 4, 1) is None


def test_groups_fall_into_never_sometimes_always():
    shapes = Counter({(4, 0): 3, (4, 1): 2, (4, 4): 5, (1, 1): 1})
    assert solve_buckets(shapes) == {"never": 3, "sometimes": 2, "always": 6}


def test_the_standard_error_counts_a_group_once_where_its_attempts_agree():
    agreeing = standard_error_from(sum((total - 8 * 0.5) ** 2 for total in (8.0, 0.0)), 16, 2)
    as_single_attempts = standard_error_from(sum((total - 0.5) ** 2 for total in (1.0, 0.0)), 2, 2)
    assert agreeing == as_single_attempts


def test_the_sample_deviation_divides_by_one_less():
    assert sample_std(3, 2.0) == 1.0


@pytest.mark.parametrize(
    ("low", "high", "first", "last"),
    [(0.2, 0.4, 0.0, 1.0), (-1.0, 1.0, -1.0, 1.0), (2.0, 2.0, 2.0, 3.0), (0.0, 5.0, 0.0, 5.0)],
)
def test_histogram_edges_hold_every_reward(low, high, first, last):
    edges = histogram_edges(low, high)
    assert (edges[0], edges[-1], len(edges)) == (first, last, 11)


def test_bars_without_rewards_are_there_with_zero():
    assert bin_counts([0.0, 0.5, 1.0], {1: 3}) == [
        {"low": 0.0, "high": 0.5, "count": 0},
        {"low": 0.5, "high": 1.0, "count": 3},
    ]


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=7), st.data())
def test_the_average_of_k_is_that_of_every_draw(rewards, data):
    k = data.draw(st.integers(1, len(rewards)))
    mean = sum(rewards) / len(rewards)
    draws = [sum(draw) / k for draw in combinations(rewards, k)]
    assert mean_average_of_k({len(rewards): (1, mean)})[k] == pytest.approx(sum(draws) / len(draws), abs=1e-9)


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=7), st.data())
def test_the_best_of_k_is_the_mean_of_the_largest_reward_of_every_draw(rewards, data):
    k = data.draw(st.integers(1, len(rewards)))
    draws = [max(draw) for draw in combinations(rewards, k)]
    assert best_of_k(rewards, k) == pytest.approx(sum(draws) / len(draws), abs=1e-9)


def test_the_best_of_k_of_rewards_0_and_1_is_pass_at_k():
    for solved in range(6):
        rewards = [1.0] * solved + [0.0] * (5 - solved)
        for k in range(1, 6):
            assert best_of_k(rewards, k) == pytest.approx(pass_at_k(5, solved, k))


def test_the_best_of_k_averages_over_groups_that_are_large_enough():
    # Three attempts with rewards -1, 0.25 and 0.5, and one attempt with reward 2.
    assert mean_best_of_k({3: (1, [-1.0, 0.25, 0.5]), 1: (1, [2.0])}) == {
        1: pytest.approx((-0.25 / 3 + 2) / 2),
        2: pytest.approx((0.25 + 2 * 0.5) / 3),
        3: pytest.approx(0.5),
    }
    with pytest.raises(ValueError, match="not defined"):
        best_of_k([0.5], 2)


def test_figures_are_given_for_every_k_and_for_the_largest():
    assert attempt_counts(0) == []
    assert attempt_counts(5) == [1, 2, 3, 4, 5]
    assert attempt_counts(EVERY_K + 300) == [*range(1, EVERY_K + 1), 256, 428]
