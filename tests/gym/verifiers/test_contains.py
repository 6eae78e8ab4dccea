import pytest

from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import response

CASES = [
    ({"wanted": ["Bern", "Rome"]}, {}, "bern, then ROME", 1.0),
    ({"wanted": ["Bern", "Rome"]}, {}, "only Bern", 0.0),
    ({"wanted": ["Bern", "Rome"], "score": "any"}, {}, "only Bern", 1.0),
    ({"wanted": ["Bern", "Rome"], "score": "any"}, {}, "neither", 0.0),
    ({"wanted": ["Bern", "Rome", "Oslo", "Nice"], "score": "fraction"}, {}, "Bern and Oslo and Nice", 0.75),
    ({"wanted": ["Bern"], "case_sensitive": True}, {}, "bern", 0.0),
    ({"wanted": ["New York"]}, {}, "new\n   york", 1.0),
    ({"wanted": ["Bern"], "forbidden": ["I cannot"]}, {}, "Bern, though i cannot say", 0.0),
    ({"forbidden": ["I cannot"]}, {}, "Bern", 1.0),
    ({}, {"expected_answer": "Bern"}, "It is Bern!", 1.0),
    ({}, {"expected_answer": ["Bern", "Rome"]}, "Bern", 0.0),
    ({"wanted_field": "facts", "score": "fraction"}, {"facts": ["a b", "c d"]}, "a b", 0.5),
    ({}, {}, "Bern", REFUSED),
    ({}, {"expected_answer": []}, "Bern", REFUSED),
    ({}, {"expected_answer": [3]}, "Bern", REFUSED),
    ({"wanted": ["Bern"]}, {}, "", 0.0),
    ({"wanted": ["Bern"]}, {}, "x" * 500_000 + " Bern", 1.0),
    ({"wanted": ["ﬁle"]}, {}, "a file", 1.0),
]


@pytest.mark.parametrize(("given", "row", "reply", "reward"), CASES)
def test_contains(given, row, reply, reward):
    assert reward_of({"type": "contains", **given}, row, reply) == reward


def test_the_components_tell_a_lack_from_a_breach():
    verifier = read_verifier({"type": "contains", "wanted": ["a", "b"], "forbidden": ["z"], "score": "fraction"})
    reward = verifier.verify({}, response("a z"))
    assert (reward.value, reward.components) == (0.0, {"wanted": 0.5, "forbidden": 0.0})
    assert reward.explanation == "contains: a; lacks: b; contains forbidden string: z"
