import pytest

from tests.gym.verifiers.cases import MISCONFIGURED, reward_of

CASES = [
    ({"wanted": [r"^\d{4}-\d\d-\d\d$"]}, "On\n2024-05-06\nit was", 1.0),
    ({"wanted": [r"^\d{4}-\d\d-\d\d$"]}, "On 2024-05-06", 0.0),
    ({"wanted": ["cat", "dog", "owl"], "score": "fraction"}, "a cat and a dog", 2 / 3),
    ({"wanted": ["cat", "dog"], "score": "any"}, "a dog", 1.0),
    ({"wanted": ["cat", "cat"], "score": "fraction"}, "a cat", 1.0),
    ({"wanted": ["cat"], "ignore_case": True}, "CAT", 1.0),
    ({"wanted": ["cat"]}, "CAT", 0.0),
    ({"wanted": ["cat"], "at_least": 2}, "cat, cat", 1.0),
    ({"wanted": ["cat"], "at_least": 3}, "cat, cat", 0.0),
    ({"wanted": ["cat"], "within": "lines", "at_least": 2}, "cat cat\ndog", 0.0),
    ({"wanted": ["cat"], "within": "lines", "at_least": 2}, "a cat\ntwo cats", 1.0),
    ({"wanted": ["[a-z ]+"], "within": "whole"}, "  only letters \n", 1.0),
    ({"wanted": ["[a-z ]+"], "within": "whole"}, "letters and 1", 0.0),
    ({"wanted": ["cat"], "forbidden": ["dog"]}, "cat and dog", 0.0),
    ({"forbidden": ["dog"]}, "cat", 1.0),
    ({"wanted": ["."]}, "", 0.0),
    ({"wanted": ["x*"]}, "y" * 20_000, 1.0),
    ({"wanted": [r"\d{3}"]}, {"output": None}, 0.0),
    ({"wanted": ["cat"]}, "\ud800 cat", 1.0),
    ({"wanted": ["("]}, "cat", MISCONFIGURED),
    ({"wanted": ["cat"], "score": "most"}, "cat", MISCONFIGURED),
    ({}, "cat", MISCONFIGURED),
]


@pytest.mark.parametrize(("given", "reply", "reward"), CASES)
def test_patterns(given, reply, reward):
    assert reward_of({"type": "regex", **given}, {}, reply) == reward
