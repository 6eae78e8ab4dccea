"""Figures of captured against recomputed log probabilities, with values worked out by hand."""

import math

import pytest

from apps.gym.metrics.logprob_differences import compare_logprobs


def test_equal_logprobs_differ_by_nothing():
    found = compare_logprobs([([-0.5, -0.25], [-0.5, -0.25]), ([-1.0], [-1.0])])
    assert (found.sequences, found.every.tokens, found.uncertain.tokens) == (2, 3, 3)
    assert (found.every.largest, found.every.p99, found.every.mean) == (0.0, 0.0, 0.0)
    assert found.every.above == {"0.001": 0.0, "0.01": 0.0, "0.1": 0.0}
    assert (found.ratio_mean, found.ratio_outside) == (1.0, {"0.01": 0.0, "0.05": 0.0})


def test_shares_and_ratios_count_what_is_beyond_a_limit():
    captured = [-0.01, -0.5, -2.0, -3.0]  # the first has a probability of 0.99
    recomputed = [-0.01, -0.505, -2.05, -2.5]  # differences 0, −0.005, −0.05, +0.5
    found = compare_logprobs([(captured, recomputed), ([-1.0], [-1.02])])
    assert found.every.largest == pytest.approx(0.5)
    assert found.every.mean == pytest.approx((0.005 + 0.05 + 0.5 + 0.02) / 5)
    assert found.every.above == {"0.001": 4 / 5, "0.01": 3 / 5, "0.1": 1 / 5}
    assert found.uncertain.tokens == 4
    assert found.uncertain.above["0.001"] == 1.0
    ratios = [math.exp(0.445), math.exp(-0.02)]
    assert found.ratio_mean == pytest.approx(sum(ratios) / 2)
    assert found.ratio_outside == {"0.01": 1.0, "0.05": 0.5}


def test_p99_is_the_nearest_rank():
    captured = [-1.0] * 200
    recomputed = [-1.0 - (0.1 if number < 2 else 0.5 if number == 2 else 0.0) for number in range(200)]
    found = compare_logprobs([(captured, recomputed)])
    assert found.every.p99 == pytest.approx(0.1)  # two of 200 may exceed it, and only one does


def test_nothing_to_compare_gives_no_figures_and_a_far_model_no_overflow():
    none = compare_logprobs([])
    assert (none.sequences, none.every.tokens, none.every.largest, none.ratio_mean) == (0, 0, None, None)
    far = compare_logprobs([([-700.0] * 3, [0.0] * 3)])
    assert far.ratio_mean == pytest.approx(math.exp(50))


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="zip"):
        compare_logprobs([([-1.0], [])])
