import pytest

from apps.gym.verifiers.near_misses import NearMiss, make_near_misses
from tests.gym.verifiers.cases import reward_of
from tests.gym.verifiers.pairs import read_answers

WITHOUT_COPIES = (r"\text{even}", r"\text{(B)}", r"\overline{AB}")
RIGHT_COPIES = {r"\binom{10}{3}": [r"\binom{10}{7}"]}
"""The same value."""


@pytest.mark.parametrize("expected", read_answers())
def test_an_answer_with_one_change_is_wrong(expected):
    row = {"expected_answer": expected}
    assert reward_of({"type": "math"}, row, f"\\boxed{{{expected}}}") == 1.0
    copies = list(make_near_misses(expected))
    assert copies or expected in WITHOUT_COPIES
    accepted = [copy.answer for copy in copies if reward_of({"type": "math"}, row, f"\\boxed{{{copy.answer}}}") != 0.0]
    assert accepted == RIGHT_COPIES.get(expected, [])


def test_each_kind_of_change_is_made():
    assert {near.kind for near in make_near_misses(r"(AB, -5\text{ cm}) < 3")} >= {"sign", "case", "bracket"}
    assert NearMiss("unit", r"5\text{ m}") in make_near_misses(r"5\text{ cm}")
    assert NearMiss("relation", r"x\le 5") in make_near_misses("x<5")
    assert NearMiss("order", "ACBD") in make_near_misses("ABCD")
    assert NearMiss("digit", "43") in make_near_misses("42")
    assert NearMiss("exponent", r"1.6\times 10^{-18}") in make_near_misses(r"1.6\times 10^{-19}")
    assert NearMiss("exponent", "x^3") in make_near_misses("x^2")


def test_changes_that_keep_an_answer_right_are_not_made():
    assert next(iter(make_near_misses("0"))) == NearMiss("digit", "1")
    assert "9.11E-31" not in {near.answer for near in make_near_misses("9.11e-31")}
    assert "X=5" not in {near.answer for near in make_near_misses("x=5")}
