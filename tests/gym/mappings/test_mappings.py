"""Columns of strangers become tasks; shapes that the field knows are found by themselves."""

import pytest

from apps.gym.mappings.columns import Mapping, MappingRefused, apply_mapping, read_mapping, write_mapping
from apps.gym.mappings.paths import MISSING, look_up
from apps.gym.mappings.shapes import find_shape
from apps.gym.mappings.templates import GapEmpty, TemplateRefused, fill_template
from apps.gym.rows import RowRefused
from apps.gym.taskfile import check_task, parse_changed


def made(rows: list[dict[str, object]]) -> tuple[str, dict[str, object]]:
    """The shape of the rows and the first of them as a task, which is one."""
    shape, mapping = find_shape(rows)
    task = apply_mapping(mapping, rows[0]) if mapping else rows[0]
    check_task("", task)
    return shape, task


def refusal(mapping: Mapping, row: dict[str, object]) -> tuple[str, str]:
    with pytest.raises(RowRefused) as refused:
        apply_mapping(mapping, row)
    return refused.value.code, refused.value.message


def test_paths_go_into_objects_and_lists_and_prefer_a_name_with_dots():
    row = {"a": {"b": [{"c": 1}], "n": None}, "a.b": "whole"}
    assert [look_up(row, path) for path in ("a.b.0.c", "a.b", "a.n", "a.b.1", "x", "a.b.0.c.d")] == [
        1, "whole", MISSING, MISSING, MISSING, MISSING,
    ]  # fmt: skip


def test_a_template_is_filled_by_paths_and_writes_json_for_what_is_no_text():
    row = {"q": "Is {this} safe?", "meta": {"options": ["a", "b"], "n": 2}}
    assert fill_template("{q} {{literal}} {meta.options} {meta.n}", row) == 'Is {this} safe? {literal} ["a","b"] 2'
    with pytest.raises(GapEmpty, match="/meta/none"):
        fill_template("{meta.none}", row)


@pytest.mark.parametrize("template", ["{", "}", "{}", "{0!r}", "{q:>10}", "{q!s}", "a {b"])
def test_a_template_that_python_would_format_otherwise_is_refused(template):
    with pytest.raises(TemplateRefused):
        fill_template(template, {"q": "x", "0": "y"})


def test_a_template_reaches_nothing_but_the_row():
    for template in ("{q.__class__}", "{q.format}", "{__globals__}", "{q[0]}"):
        with pytest.raises(GapEmpty):
            fill_template(template, {"q": "x"})


def test_openai_messages_are_found_with_calls_results_and_tools():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "2"},
    ]
    shape, task = made([{"messages": messages, "tools": [tool], "source": "x"}])
    params = task["responses_create_params"]
    assert shape == "messages"
    assert [item.get("type", "message") for item in params["input"]] == [
        "message", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert params["tools"] == [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    assert (task["expected_answer"], task["source"]) == ("2", "x")


def test_verl_rows_are_found():
    row = {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"split": "train", "index": 7},
    }
    shape, task = made([row])
    assert shape == "verl"
    assert (task["expected_answer"], task["split"], task["id"], task["tags"]) == ("2", "train", 7, ["math"])
    assert task["reward_model"] == row["reward_model"]
    assert task["responses_create_params"] == {"input": row["prompt"]}


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"question": "1 + 1?", "answer": "2"}, "2"),
        ({"prompt": "1 + 1?", "ground_truth": 2}, 2),
        ({"problem": "1 + 1?", "solution": "two"}, "two"),
        ({"prompt": [{"role": "user", "content": "1 + 1?"}], "target": "2"}, "2"),
        ({"prompt": '[{"role": "user", "content": "1 + 1?"}]', "label": "2"}, "2"),
    ],
)
def test_prompt_and_answer_are_found_by_many_names(row, answer):
    shape, task = made([row])
    assert (shape, task["expected_answer"]) == ("prompt_answer", answer)
    assert task["responses_create_params"]["input"] == [{"role": "user", "content": "1 + 1?"}]


def test_rows_of_nemo_gym_need_no_mapping_and_the_unknown_has_none():
    assert find_shape([{"responses_create_params": {"input": "q"}, "prompt": "x"}]) == ("nemo_gym", None)
    assert find_shape([{"a": 1}, {"b": 2}]) == ("unknown", None)
    assert find_shape([]) == ("unknown", None)


def test_a_few_odd_rows_do_not_change_what_the_file_is():
    rows = [{"a": 1}, *[{"question": "q", "answer": "a"}] * 5, {"responses_create_params": {}}]
    assert find_shape(rows)[0] == "prompt_answer"


def test_a_mapping_says_what_becomes_of_each_column():
    mapping = read_mapping(
        {
            "user": "Solve: {problem.text}",
            "system": "You are {role}.",
            "expected_answer": "problem.answer",
            "external_id": "key",
            "tags": "topics",
            "split": "part",
            "fields": {"difficulty": "meta.level", "absent": "meta.none"},
            "rest": "drop",
        }
    )
    row = {
        "problem": {"text": "1 + 1", "answer": 2}, "role": "terse", "key": "k1", "topics": "a; b", "part": "train",
        "meta": {"level": 3}, "other": True,
    }  # fmt: skip
    assert apply_mapping(mapping, row) == {
        "responses_create_params": {
            "input": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Solve: 1 + 1"}]
        },
        "difficulty": 3,
        "expected_answer": 2,
        "id": "k1",
        "split": "train",
        "tags": ["a", "b"],
    }
    assert read_mapping(write_mapping(mapping)) == mapping


def test_columns_that_nothing_names_are_kept_but_not_those_that_are_used():
    task = apply_mapping(read_mapping({"input": "q"}), {"q": "hi", "x": 1, "responses_create_params": "odd"})
    assert task == {"responses_create_params": {"input": [{"role": "user", "content": "hi"}]}, "x": 1}


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({}, "/input"),
        ({"input": "a", "user": "b"}, "/input"),
        ({"inptu": "a"}, "/"),
        ({"input": 5}, "/input"),
        ({"user": "{"}, "/user"),
        ({"input": "a", "system": "{x!r}"}, "/system"),
        ({"input": "a", "fields": {"responses_create_params": "x"}}, "/fields"),
        ({"input": "a", "fields": {f"f{n}": "x" for n in range(101)}}, "/fields"),
        ({"input": "a", "rest": "maybe"}, "/rest"),
        ([], "/"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_with_its_place(given, pointer):
    with pytest.raises(MappingRefused) as refused:
        read_mapping(given)
    assert refused.value.pointer == pointer


def test_rows_that_lack_what_the_mapping_needs_are_refused_with_the_place():
    assert refusal(Mapping(input="a.b"), {"a": {}}) == ("missing", "/a/b is missing: the column of the prompt")
    assert refusal(Mapping(user="{x}"), {}) == ("missing", "/x is missing: the prompt template needs it")
    assert refusal(Mapping(input="a"), {"a": 5}) == ("wrong_type", "/a must be text or a list of messages")
    assert refusal(Mapping(input="a"), {"a": [1]}) == ("wrong_type", "/a must be text or a list of messages")
    assert refusal(Mapping(input="a", external_id="i"), {"a": "q", "i": {}})[0] == "wrong_type"
    broken = [{"role": "assistant", "tool_calls": ["x"]}]
    assert refusal(Mapping(input="a"), {"a": broken})[0] == "wrong_shape"


def test_numbers_keep_their_digits_through_a_mapping():
    line = b'{"q": "hi", "big": 123456789012345678901234567890, "small": 7}'
    task = parse_changed(line, lambda row: apply_mapping(Mapping(input="q"), row))
    assert '"big": 123456789012345678901234567890' in task.row_json
