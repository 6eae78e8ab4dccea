"""Where a verifier runs, and what becomes of one that breaks."""

import asyncio

import pytest

from apps.gym.errors import JudgeError, VerifierError
from apps.gym.verifiers import verification
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import MAX_ON_LOOP, verify_attempt, weigh
from tests.gym.verifiers.replies import attempt, calls, response, says

ROW = {"expected_answer": "42", "expected_answers": [{"name": "f", "arguments": {}}]}
SHORT, LONG = response("42"), response("x" * MAX_ON_LOOP + " 42")
MANY = attempt(*[calls("f")] * 600)


class Elsewhere:
    """Stands for the processes, and keeps which verifiers came there."""

    def __init__(self):
        self.came = []

    async def verify(self, verifier, row, response, *, seconds, whose=""):
        self.came.append((verifier.title, seconds))
        return verifier.verify(row, response)


@pytest.fixture
def elsewhere(monkeypatch):
    pool = Elsewhere()
    monkeypatch.setattr(verification, "shared_pool", lambda: pool)
    return pool


def verify(given, response, **options):
    return asyncio.run(verify_attempt(read_verifier(given), ROW, response, **options))


@pytest.mark.parametrize(
    ("given", "response", "left"),
    [
        ({"type": "exact_match"}, SHORT, False),
        ({"type": "exact_match"}, LONG, True),
        ({"type": "exact_match", "extract": "pattern", "pattern": "4."}, SHORT, True),
        ({"type": "math"}, SHORT, True),
        ({"type": "regex", "wanted": ["4"]}, SHORT, True),
        ({"type": "tool_calls"}, attempt(calls("f")), False),
        ({"type": "tool_calls"}, MANY, True),
        ({"type": "tool_calls"}, attempt(calls("f", {"a": "x" * MAX_ON_LOOP})), True),
        ({"type": "instructions", "instructions": [{"id": "punctuation:no_comma"}]}, SHORT, False),
    ],
)
def test_slow_verifiers_run_outside_the_event_loop(elsewhere, given, response, left):
    verify(given, response)
    assert bool(elsewhere.came) == left


def test_the_shorter_of_two_time_limits_holds(elsewhere):
    verify({"type": "regex", "wanted": ["4"], "time_limit": 3}, SHORT)
    verify({"type": "regex", "wanted": ["4"], "time_limit": 3}, SHORT, most_seconds=2)
    assert elsewhere.came == [("Regular expressions", 3.0), ("Regular expressions", 2)]


def test_each_part_of_a_hybrid_runs_where_it_belongs(elsewhere):
    parts = [{"name": "a", "verifier": {"type": "exact_match"}}, {"name": "b", "verifier": {"type": "math"}}]
    reward = verify({"type": "hybrid", "components": parts}, SHORT)
    assert (reward.value, reward.components) == (1.0, {"a": 1.0, "b": 1.0})
    assert elsewhere.came == [("Symbolic mathematics", 10.0)]


def test_a_part_that_fails_fails_the_whole_and_is_no_zero():
    parts = [
        {"name": "a", "verifier": {"type": "exact_match"}},
        {"name": "b", "verifier": {"type": "multiple_choice"}},
    ]
    with pytest.raises(VerifierError, match="`options`"):
        verify({"type": "hybrid", "components": parts}, SHORT)


def test_a_verifier_that_breaks_is_a_verifier_error():
    broken = attempt({"type": "message", "role": "assistant", "content": [{"text": 3}]})
    with pytest.raises(VerifierError, match="Contains strings: TypeError") as wrong:
        verify({"type": "contains", "wanted": ["x"]}, broken)
    assert not wrong.value.transient


def test_without_a_judge_model_verification_fails():
    with pytest.raises(JudgeError, match="no judge model is set"):
        verify({"type": "llm_judge"}, attempt(says("42")))


def test_odd_parts_of_a_reply_count_without_their_text():
    odd = {"type": "future_item", "content": [{"type": "number", "text": 42}]}
    assert weigh(attempt(odd)) == weigh(attempt({"type": "future_item", "content": []}))
    assert weigh(attempt(says("x" * 1_000))) == weigh(attempt(says(""))) + 1_000
