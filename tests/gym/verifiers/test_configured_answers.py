"""Exact match and numbers with parameters of their own."""

import pytest

from tests.gym.verifiers.cases import REFUSED, reward_of

EXACT = [
    ({}, {"expected_answer": "Paris"}, "It is \\boxed{paris}.", 1.0),
    ({}, {"expected_answer": "Paris"}, "thinking\nParis.", 1.0),
    ({}, {"expected_answer": "Paris"}, "Rome", 0.0),
    ({"case_sensitive": True}, {"expected_answer": "Paris"}, "paris", 0.0),
    ({"case_sensitive": False}, {"expected_answer": "Paris", "case_sensitive": True}, "paris", 1.0),
    ({"extract": "boxed"}, {"expected_answer": "Paris"}, "Paris", 0.0),
    ({"extract": "last_line"}, {"expected_answer": "Paris"}, "\\boxed{Rome}\nParis", 1.0),
    ({"extract": "pattern", "pattern": r"<answer>(.*?)</answer>"}, {"expected_answer": "7"}, "<answer>7</answer>", 1.0),
    ({"extract": "pattern", "pattern": r"\d+"}, {"expected_answer": "7"}, "first 5, then 7", 1.0),
    ({"extract": "pattern", "pattern": r"(x)?y"}, {"expected_answer": "7"}, "y", 0.0),
    ({"expected": 42}, {}, "42", 1.0),
    ({"expected": "a"}, {"expected_answer": "b"}, "a", 1.0),
    ({"expected_field": "gold"}, {"gold": "Paris"}, "Paris", 1.0),
    ({}, {}, "Paris", REFUSED),
    ({}, {"expected_answer": ["Paris"]}, "Paris", REFUSED),
    ({}, {"expected_answer": "Paris", "extraction_mode": "guess"}, "Paris", REFUSED),
    ({}, {"expected_answer": "Paris"}, "", 0.0),
    ({}, {"expected_answer": "Paris"}, "\\boxed{" * 50_000 + "Paris", 0.0),
    ({}, {"expected_answer": "Paris"}, {"output": None}, 0.0),
]

NUMERIC = [
    ({}, {"expected_answer": "1234"}, "It is 1,234.", 1.0),
    ({}, {"expected_answer": 0.5}, "\\boxed{\\frac{1}{2}}", 1.0),
    ({}, {"expected_answer": "42"}, "43", 0.0),
    ({"absolute_tolerance": 1}, {"expected_answer": "42"}, "43", 1.0),
    ({"absolute_tolerance": 1}, {"expected_answer": "42"}, "43.01", 0.0),
    ({"relative_tolerance": 0.1}, {"expected_answer": "100"}, "110", 1.0),
    ({"relative_tolerance": 0.1}, {"expected_answer": "100"}, "110.1", 0.0),
    ({"relative_tolerance": 0.1}, {"expected_answer": "-100"}, "-91", 1.0),
    ({"absolute_tolerance": 5, "relative_tolerance": 0.01}, {"expected_answer": "100"}, "104", 1.0),
    ({"absolute_tolerance": 0}, {"expected_answer": "0.1", "tolerance": 5}, "0.2", 0.0),
    ({}, {"expected_answer": "0.1", "tolerance": 5}, "0.2", 1.0),
    ({"expected": "1/3"}, {}, "0.3333333333", 1.0),
    ({"extract": "pattern", "pattern": r"x = (.*)"}, {"expected_answer": 3}, "x = 3\ny = 4", 1.0),
    ({}, {"expected_answer": "forty"}, "40", REFUSED),
    ({}, {"expected_answer": "1", "tolerance": -1}, "1", REFUSED),
    ({}, {"expected_answer": "1"}, "no number at all", 0.0),
    ({}, {"expected_answer": "1"}, "9" * 100_000, 0.0),
    ({}, {"expected_answer": "1"}, "1e999", 0.0),
    ({}, {"expected_answer": "1"}, "nan", 0.0),
]


@pytest.mark.parametrize(("given", "row", "reply", "reward"), EXACT)
def test_exact_match(given, row, reply, reward):
    assert reward_of({"type": "exact_match", **given}, row, reply) == reward


@pytest.mark.parametrize(("given", "row", "reply", "reward"), NUMERIC)
def test_numeric(given, row, reply, reward):
    assert reward_of({"type": "numeric", **given}, row, reply) == reward
