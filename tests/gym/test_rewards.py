import pytest

from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward


@pytest.mark.parametrize("value", [1e308, -1e101, float("inf"), float("nan")])
def test_a_non_finite_or_huge_reward_is_a_verifier_error(value):
    with pytest.raises(VerifierError, match="a reward"):
        Reward(value=value)
    with pytest.raises(VerifierError, match="a reward"):
        Reward(value=0.0, components={"part": value})


def test_a_large_reward_is_kept():
    assert Reward(value=-1e100).value == -1e100


def test_an_explanation_can_always_be_stored():
    assert Reward(value=0.0, explanation="half \ud800 a pair").explanation == "half ? a pair"
