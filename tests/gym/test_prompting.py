"""A prompt template asks the same task in another way."""

import pytest

from apps.gym.errors import EnvironmentFault
from apps.gym.tasks.prompt_templates import (
    PromptTemplate,
    apply_prompt_template,
    apply_template_or_fail,
    find_template_problems,
)

ROW = {
    "responses_create_params": {
        "instructions": "Be brief.",
        "input": [{"role": "developer", "content": "old"}, {"role": "user", "content": "What is 2 + 2?"}],
        "temperature": 0.5,
    },
    "hint": {"unit": "apples"},
}


def test_template_parts_replace_the_rows_and_read_its_fields():
    asked = apply_prompt_template(PromptTemplate(system="In {hint.unit}.", user="Think. {prompt}"), ROW)
    assert asked["responses_create_params"] == {
        "input": [
            {"type": "message", "role": "system", "content": "In apples."},
            {"type": "message", "role": "user", "content": "Think. What is 2 + 2?"},
        ],
        "temperature": 0.5,
    }
    assert asked["hint"] == ROW["hint"]


def test_the_user_part_alone_leaves_system_messages_and_instructions():
    params = apply_prompt_template(PromptTemplate(user="Again: {prompt}"), ROW)["responses_create_params"]
    assert (params["instructions"], params["input"][0]) == ("Be brief.", {"role": "developer", "content": "old"})
    assert params["input"][1]["content"] == "Again: What is 2 + 2?"


def test_an_empty_template_changes_nothing():
    assert apply_prompt_template(PromptTemplate(), ROW) is ROW


def test_a_text_prompt_becomes_the_gap():
    row = {"responses_create_params": {"input": "Say hi."}}
    asked = apply_prompt_template(PromptTemplate(user="{prompt}!"), row)["responses_create_params"]["input"]
    assert [item["content"] for item in asked] == ["Say hi.!"]


def test_a_row_that_lacks_a_gap_fails_for_good():
    with pytest.raises(EnvironmentFault, match="needs /topic, which this task lacks") as failed:
        apply_template_or_fail(PromptTemplate(user="{topic}"), ROW)
    assert failed.value.transient is False


def test_errors_of_a_template_name_the_part():
    problems = find_template_problems(PromptTemplate(system="{", user="x" * 20_001))
    assert problems.keys() == {"system", "user"}
    assert "Single '{'" in problems["system"]
    assert "20,000 characters" in problems["user"]
