import pytest

from tests.gym.verifiers.cases import reward_of
from tests.gym.verifiers.pairs import read_pairs

VERIFIERS = ("exact_match", "math", "numeric", "string_match")


@pytest.mark.parametrize(
    ("verifier", "expected", "reply", "reward"),
    [
        pytest.param(
            name,
            pair.expected,
            pair.reply,
            pair.reward,
            id=f"{name}: {pair.expected} from {pair.answer}",
            marks=[pytest.mark.xfail(strict=True, reason=pair.problem)] if pair.problem else [],
        )
        for name in VERIFIERS
        for pair in read_pairs(name)
    ],
)
def test_a_reply_has_the_reward_of_its_data_set(verifier, expected, reply, reward):
    assert reward_of({"type": verifier}, {"expected_answer": expected}, reply) == reward


def test_at_most_one_pair_of_a_hundred_is_a_right_answer_that_gets_nothing():
    pairs = [pair for name in VERIFIERS for pair in read_pairs(name)]
    assert len(pairs) > 600
    assert sum(bool(pair.problem) for pair in pairs) <= len(pairs) / 100
