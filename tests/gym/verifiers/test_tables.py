"""Each verifier's table of cases: at least twelve with the reward written out, of every sort that there is."""

import json

import pytest

from apps.gym.verifiers.registry import VERIFIERS
from tests.gym.verifiers import (
    test_configured_answers,
    test_contains,
    test_efficiency,
    test_final_state,
    test_hybrid,
    test_instructions,
    test_llm_judge,
    test_mathematics,
    test_multiple_choice,
    test_patterns,
    test_reward_model,
    test_string_match,
    test_structured_output,
    test_tool_calls,
)
from tests.gym.verifiers.cases import MISCONFIGURED, REFUSED

TABLES = {
    "exact_match": test_configured_answers.EXACT,
    "numeric": test_configured_answers.NUMERIC,
    "math": test_mathematics.CASES,
    "multiple_choice": test_multiple_choice.CASES,
    "string_match": test_string_match.CASES,
    "contains": test_contains.CASES,
    "regex": test_patterns.CASES,
    "json_schema": test_structured_output.CASES,
    "tool_calls": test_tool_calls.CASES,
    "call_argument": test_tool_calls.ARGUMENT,
    "tool_call_form": test_tool_calls.FORM,
    "final_state": test_final_state.CASES,
    "instructions": test_instructions.ROWS,
    "efficiency": test_efficiency.CASES,
    "llm_judge": test_llm_judge.CASES,
    "reward_model": test_reward_model.CASES,
    "hybrid": test_hybrid.CASES,
}
"""Each a list of cases that end in the reward, or in what stands for one."""
NO_REWARD = (REFUSED, MISCONFIGURED)
LEAST = 12
WITHOUT_PARTS = {"exact_match", "numeric", "math", "multiple_choice", "json_schema", "call_argument"}
"""They give 0.0 or 1.0."""
HOSTILE = 5_000
"""Characters of a case that nobody in good faith would write."""


def test_every_verifier_has_a_table():
    assert sorted(TABLES) == sorted(VERIFIERS)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_a_table_has_cases_of_every_sort(kind):
    table = TABLES[kind]
    rewards = [case[-1] for case in table]
    numbers = [reward for reward in rewards if reward not in NO_REWARD]
    assert all(isinstance(reward, float) for reward in numbers)
    sorts = {
        "full": max(numbers) >= 1.0,
        "partial": kind in WITHOUT_PARTS or any(0.0 < reward < max(numbers) for reward in numbers),
        "zero": 0.0 in numbers,
        "malformed": any(reward in NO_REWARD for reward in rewards),
        "hostile": any(len(json.dumps(case, default=str)) >= HOSTILE for case in table),
    }
    assert [sort for sort, there in sorts.items() if not there] == []
    assert len(table) >= LEAST
