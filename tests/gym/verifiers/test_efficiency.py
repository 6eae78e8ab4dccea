import pytest

from apps.gym.verifiers.registry import find_problems, read_verifier
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import attempt, calls, returns, says

ROUND = [calls("f"), returns("1")]
TWO_STEPS = attempt(*ROUND, says("done"), input_tokens=900, output_tokens=100)
FOUR_STEPS = attempt(*ROUND, *ROUND, *ROUND, says("done"), input_tokens=2_700, output_tokens=300)
TWO_AT_ONCE = attempt(calls("f"), calls("g", call_id="c2"), returns("1"), returns("2", "c2"), says("done"))
TWO_SPOKEN = attempt(says("first"), {"type": "message", "role": "user", "content": "and?"}, says("then"))

CASES = [
    ({"steps": 2}, TWO_STEPS, 1.0),
    ({"steps": 2}, FOUR_STEPS, 0.0),
    ({"steps": 3}, FOUR_STEPS, 2 / 3),
    ({"steps": 3, "tolerance": 0}, FOUR_STEPS, 0.0),
    ({"steps": 2, "tolerance": 2}, FOUR_STEPS, 0.5),
    ({"steps": 2}, TWO_AT_ONCE, 1.0),
    ({"steps": 1}, TWO_SPOKEN, 0.0),
    ({"tool_calls": 1}, TWO_AT_ONCE, 0.0),
    ({"tool_calls": 0}, attempt(says("done")), 1.0),
    ({"tool_calls": 0}, TWO_STEPS, 0.0),
    ({"tokens": 1_000}, TWO_STEPS, 1.0),
    ({"tokens": 2_000}, FOUR_STEPS, 0.5),
    ({"output_tokens": 200}, FOUR_STEPS, 0.5),
    ({"steps": 3, "tokens": 2_000}, FOUR_STEPS, (2 / 3 + 0.5) / 2),
    ({"steps": 1}, attempt(), 1.0),
    ({"tokens": 10}, {"output": None}, REFUSED),
    ({"tokens": 10}, attempt(says("done")), REFUSED),
    ({"tokens": 10}, attempt(says("done"), input_tokens=0, output_tokens=0), REFUSED),
    ({"output_tokens": 10}, attempt(says("done"), input_tokens=5, output_tokens=0), REFUSED),
    ({"output_tokens": 10}, {"output": [says("done")], "usage": "much"}, REFUSED),
    ({"output_tokens": 10}, {"output": [says("done")], "usage": {"output_tokens": "5"}}, REFUSED),
    ({"output_tokens": 10}, attempt(input_tokens=5, output_tokens=0), 1.0),
    ({"steps": 1}, attempt(says("done")), 1.0),
    ({"steps": 1}, attempt(*[says("x")] * 10_000), 1.0),
]


@pytest.mark.parametrize(("given", "reply", "reward"), CASES)
def test_efficiency(given, reply, reward):
    found = reward_of({"type": "efficiency", **given}, {}, reply)
    assert found == (reward if reward == REFUSED else pytest.approx(reward))


def test_each_budget_is_a_component():
    reward = read_verifier({"type": "efficiency", "steps": 3, "tool_calls": 9}).verify({}, FOUR_STEPS)
    assert reward.components == {"steps": pytest.approx(2 / 3), "tool_calls": 1.0}
    assert reward.explanation == "4 of 3 steps, 3 of 9 tool calls"


def test_without_a_budget_there_is_nothing_to_measure():
    [(place, problem)] = find_problems({"type": "efficiency"})
    assert place == ""
    assert "steps, tool_calls, tokens or output_tokens" in problem
