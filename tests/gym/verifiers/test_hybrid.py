import pytest

from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import response

RIGHT = {"name": "right", "verifier": {"type": "numeric"}}
POLITE = {"name": "polite", "verifier": {"type": "contains", "wanted": ["please", "thanks"], "score": "fraction"}}
RUDE = {"name": "rude", "weight": -0.5, "verifier": {"type": "contains", "wanted": ["damn"]}}
BOTH, HALF, NEITHER, POLITE_ONLY = "please, thanks: 42", "thanks: 42", "43", "please, thanks: 43"


def hybrid(*parts, **fields):
    return {"type": "hybrid", "components": list(parts), **fields}


CASES = [
    (hybrid(RIGHT, POLITE), BOTH, 1.0),
    (hybrid(RIGHT, POLITE), HALF, 0.75),
    (hybrid(RIGHT, POLITE), NEITHER, 0.0),
    (hybrid({**RIGHT, "weight": 3}, POLITE), HALF, 0.875),
    (hybrid(RIGHT, POLITE, combine="sum"), HALF, 1.5),
    (hybrid(RIGHT, POLITE, combine="product"), HALF, 0.5),
    (hybrid(RIGHT, POLITE, combine="min"), HALF, 0.5),
    (hybrid(RIGHT, POLITE, combine="max"), HALF, 1.0),
    (hybrid(RIGHT, RUDE), "damn 42", 0.5),
    (hybrid(RIGHT, RUDE, combine="sum"), "damn 43", -0.5),
    (hybrid({**RIGHT, "required": True}, POLITE), POLITE_ONLY, 0.0),
    (hybrid({**RIGHT, "required": True}, POLITE), HALF, 0.75),
    (hybrid({**RIGHT, "weight": 0}, POLITE), HALF, 0.5),
    (hybrid(RIGHT), "", 0.0),
    (hybrid(RIGHT, POLITE), {"output": None}, 0.0),
    (hybrid(RIGHT, POLITE), "please " * 10_000 + "9" * 20_000, 0.25),
    (hybrid({"name": "right", "verifier": {"type": "numeric", "expected_field": "gold"}}, POLITE), BOTH, REFUSED),
    (hybrid({"name": "judge", "verifier": {"type": "llm_judge"}}, RIGHT), BOTH, REFUSED),
]


@pytest.mark.parametrize(("given", "reply", "reward"), CASES)
def test_hybrid(given, reply, reward):
    assert reward_of(given, {"expected_answer": "42"}, reply) == reward


def test_each_part_keeps_its_name_and_what_it_says():
    given = hybrid(RIGHT, {"name": "style", "verifier": {"type": "contains", "wanted": ["a", "b"], "forbidden": ["z"]}})
    reward = read_verifier(given).verify({"expected_answer": "42"}, response("a b 42"))
    assert reward.components == {"right": 1.0, "style": 1.0, "style.wanted": 1.0, "style.forbidden": 1.0}
    assert reward.explanation == 'right 1: answer "a b 42" equals expected 42\nstyle 1: contains: a, b'
    assert sorted(reward.details) == ["right", "style"]


def test_a_required_part_says_why_the_whole_is_nothing():
    reward = read_verifier(hybrid({**RIGHT, "required": True}, POLITE)).verify({"expected_answer": 42}, response("43"))
    assert reward.explanation.endswith("0.0, because right must be 1.0")
