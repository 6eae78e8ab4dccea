"""Columns of strangers become tasks; shapes that the field knows are found by themselves."""

import pytest

from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.mappings.column_mapping import Mapping, MappingRefused, apply_mapping, read_mapping, write_mapping
from apps.gym.tasks.mappings.leftovers import Leftovers
from apps.gym.tasks.mappings.shapes import find_shape
from apps.gym.tasks.mappings.templates import MISSING, GapEmpty, TemplateRefused, fill_template, look_up
from apps.gym.tasks.task_rows import check_task, parse_changed


def user_texts(rows: list[dict[str, object]]) -> list[str]:
    """The prompts that the mapping found for these rows makes of them, each with the system message before it."""
    _, mapping = find_shape(rows)
    tasks = [apply_mapping(mapping, one)["responses_create_params"]["input"] for one in rows]
    return [" | ".join(item["content"] for item in items) for items in tasks]


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


def test_a_template_is_filled_by_paths_and_writes_other_values_as_json():
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


def test_openai_messages_are_found_with_tools_and_cut_at_the_last_user_message():
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
    # The result of the tool would show the answer.
    assert params["input"] == messages[:2]
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
    assert (task["expected_answer"], task["split"], task["id"], task["tags"]) == (
        "2",
        "train",
        "gsm8k/train/7",
        ["math"],
    )
    assert (task["reward_model"], task["data_source"]) == (row["reward_model"], "gsm8k")
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


def verl(**fields: object) -> dict[str, object]:
    prompt = [{"role": "user", "content": "1 + 1?"}]
    return {"data_source": "gsm8k", "prompt": prompt, "reward_model": {"ground_truth": "2"}, **fields}


@pytest.mark.parametrize(
    ("row", "id"),
    [
        (verl(extra_info={"split": "test", "index": 0}), "gsm8k/test/0"),
        (verl(extra_info={"split": "train", "index": 0}, data_source="math"), "math/train/0"),
        (verl(extra_info={"index": 0}, split="dev"), "gsm8k/dev/0"),
        (verl(extra_info={"index": 0}), None),
        (verl(extra_info={"split": "train", "index": 0}, id="own"), "own"),
        (verl(extra_info={"split": "train", "index": 0}, data_source=None), "train/0"),
    ],
)
def test_the_number_of_a_verl_row_is_an_id_only_together_with_its_split_and_source(row, id):
    assert made([row])[1].get("id") == id


def test_an_id_of_several_columns_leaves_them_and_a_row_that_lacks_one_has_none():
    mapping = read_mapping({"input": "q", "external_id": "{part}/{n}"})
    assert apply_mapping(mapping, {"q": "hi", "part": "a", "n": 0})["id"] == "a/0"
    assert apply_mapping(mapping, {"q": "hi", "part": "", "n": 0}).keys() == {"responses_create_params", "part", "n"}


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (
            [
                {"instruction": "Add.", "input": "1 + 1", "output": "2"},
                {"instruction": "Sing.", "input": "", "output": ""},
            ],
            ["Add.\n\n1 + 1", "Sing."],
        ),
        ([{"instruction": "Who?", "context": "Ada did.", "response": "Ada"}], ["Who?\n\nAda did."]),
        ([{"question": "Who?", "context": None}, {"question": "Why?", "context": "Rain."}], ["Who?", "Why?\n\nRain."]),
        ([{"question": "Who?", "context": {"title": ["x"]}}], ["Who?"]),
        ([{"prompt": "Who? Ada did.", "context": "Ada did."}], ["Who? Ada did."]),
        ([{"system": "", "question": "a"}, {"system": "Be brief.", "question": "b"}], ["a", "Be brief. | b"]),
        ([{"system": 5, "question": "a"}], ["a"]),
        ([{"system": "S", "messages": [{"role": "user", "content": "a"}]}], ["S | a"]),
        (
            [{"system": "S", "prompt": [{"role": "system", "content": "own"}, {"role": "user", "content": "a"}]}],
            ["own | a"],
        ),
    ],
)
def test_what_goes_on_with_a_prompt_and_comes_before_it_is_in_it(rows, texts):
    assert user_texts(rows) == texts


def test_a_system_message_of_more_than_gaps_needs_them():
    mapping = Mapping(input="q", system="You are {role}.")
    assert refusal(mapping, {"q": "hi"}) == ("missing", "/role is missing: the prompt template needs it")


def test_a_context_needs_a_prompt_that_is_text_and_no_template():
    mapping = Mapping(input="q", context="c")
    prompt = [{"role": "user", "content": "a"}]
    assert apply_mapping(mapping, {"q": prompt, "c": ""})["responses_create_params"]["input"] == prompt
    assert refusal(mapping, {"q": prompt, "c": "more"})[0] == "wrong_type"
    with pytest.raises(MappingRefused, match="With a template, context must be a placeholder in the"):
        read_mapping({"user": "{q}", "context": "c"})


@pytest.mark.parametrize(
    ("rows", "header", "answer"),
    [
        ([{"question": "q", "answer": None}] * 3, (), "answer"),
        ([{"question": "q", "answer": ""}] * 3, (), "answer"),
        ([{"question": "q"}] * 3, ("question", "answer"), "answer"),
        ([{"question": "q", "answer": None, "solution": "s"}] * 3, (), "solution"),
        ([{"question": "q", "answer": "a"}] * 3 + [{"question": "q", "expected_answer": "e"}], (), "answer"),
        (
            [{"question": "q", "answer": "a"}] * 3 + [{"responses_create_params": {}, "expected_answer": "e"}] * 2,
            (),
            "answer",
        ),
        ([{"question": "q"}], (), ""),
    ],
)
def test_the_answer_is_the_column_that_is_called_so_whether_or_not_the_first_rows_have_one(rows, header, answer):
    assert find_shape(rows, header)[1].expected_answer == answer


def test_columns_named_like_a_part_of_the_prompt_or_an_answer_are_told_where_they_are_neither():
    row = {"question": "q", "choices": ["a", "b"], "answer": "a", "solution": "because", "history": [], "level": 3}
    leftovers = Leftovers(find_shape([row])[1])
    assert leftovers.warning == ""
    leftovers.add(row)
    assert "are not mapped: choices." in leftovers.warning
    assert "are not mapped: solution." in leftovers.warning
    assert ("level" in leftovers.warning, "history" in leftovers.warning) == (False, False)


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


def test_unmapped_columns_are_kept_and_mapped_ones_are_not():
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
        ({"input": "a", "external_id": "{x"}, "/external_id"),
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
    assert f"/{refused.value.argument}" == pointer


def test_rows_that_lack_what_the_mapping_needs_are_refused_with_the_place():
    assert refusal(Mapping(input="a.b"), {"a": {}}) == ("missing", "/a/b is missing: the prompt column")
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
