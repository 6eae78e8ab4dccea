import json

import pytest

from apps.gym.verifiers.structured.json_finder import find_json
from tests.deadlines import cpu_deadline


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```text\na plan\n```\n```json\n[1]\n```", [1]),
        ("```json\n[1]\n```\nIts length is:\n```\n1\n```", [1]),
        ("```\n[1]\n```\n```\n[2]\n```", [2]),
        ("```json\r\n[1]\r\n```", [1]),
        ("- Here:\n  ~~~json\n  [1]\n  ~~~", [1]),
        ("````json\n[1]\n````", [1]),
        ("```json\nnone\n```\n```\n[1]\n```", [1]),
    ],
)
def test_the_last_block_that_says_json_comes_first(text, found):
    assert find_json(text) == found


DOCUMENT = {
    "person": {"name": "A"},
    "é": [{"x": True}, False, None, -1.5e10, 1e-5],
    's"q': 't\\\n\U0001f600 "q" [x] {y}',
    "empty": [{}, []],
    "lists": [[1], [2]],
}


@pytest.mark.parametrize(
    "before", ["", "So: ", "```json\n", '{"person": {"name": "B"}} or ', "```\n[1]\n```\n```json\n"]
)
@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"ensure_ascii": False}])
def test_a_reply_cut_off_anywhere_inside_an_object_holds_no_json(before, style):
    text = json.dumps(DOCUMENT, **style)
    assert find_json(before + text) == DOCUMENT
    assert [find_json(before + text[:end]) for end in range(1, len(text))] == [None] * (len(text) - 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Broken JSON encloses what is in it.
        ('{"person": {"name": "A"}, age: 3}', None),
        ('{"age": 3, born: 1990, "person": {"name": "A"}}', None),
        ('[{"name": "A"}, {"name": "B"}, and more]', None),
        ('{"age": NaN, "person": {"name": "A"}}', None),
        (f'{{"age": {"9" * 5_000}, "person": {{"name": "A"}}}}', None),
        ('{"a": "x"y", "b": {"c": 1}', None),
        ('{"a": 1,} Corrected: {"a": 2}', {"a": 2}),
        ('{"a": "x"y"} Corrected: {"a": "xy"}', {"a": "xy"}),
        ('{"a": {"b": 1}, c} means {"a": 2}', {"a": 2}),
        ('{"a": 2}, or with both {"a": {"b": 1}, c}', None),
        ('At first {"a": 1}, so {"a": 2, "b": }', None),
        ('```json\n{"a": 1}\n```\nCorrected:\n```json\n{"a": 2,}\n```', None),
        ('{"a": 1} as {key: value}', {"a": 1}),
        ('{person {"name": "A"}}', None),
        ('{persons [{"name": "A"}]}', None),
        # So does JSON that lost its first bracket.
        ('"person": {"name": "A"}, "age": 3}', None),
        ('Here it is: "list": [1, 2], "age": 3}', None),
        ('name": "A", "x": {"b": 1}}', None),
        ('```json\n"a": {"b": 1}}\n```', None),
        ('person: {"name": "A"}}', None),
        ('{"a": 1}, {"a": 2}]', None),
        ("1, [2, 3]]", None),
        ('"a": {"b": 1}} Corrected: {"a": {"b": 1}}', {"a": {"b": 1}}),
        ('For the "person": {"name": "A"}', {"name": "A"}),
        # A bracket in prose does not.
        ('use the [x notation. {"a": 1}', {"a": 1}),
        ('{see below {"a": 1}', {"a": 1}),
        ('(see [note] and [table 1]) {"a": 1}', {"a": 1}),
        ('for x in [0, 1) it is {"a": 1}', {"a": 1}),
        ('the set {1, 2} gives {"a": 1} :-]', {"a": 1}),
        (r'\boxed{{"a": 1}}', {"a": 1}),
        ('[see {"a": 1}]', {"a": 1}),
        ('["a", and so on, {"a": 1}', {"a": 1}),
    ],
)
def test_broken_json_encloses_its_values_and_prose_does_not(text, found):
    assert find_json(text) == found


@pytest.mark.parametrize(
    "part", ['{"', '["', "[x", "[[1],x", '[{"a', '{"a" ', "[0, 1) ", '{"a": NaN', '{"a":1}x', "[ "]
)
def test_json_is_sought_in_linear_time(part):
    with cpu_deadline():
        find_json(part * 200_000)


@pytest.mark.parametrize(
    "text",
    [
        "{person: %s, 'x': 2}",
        "{'a': %s}",
        "{`x`: %s}",
        "{“x”: %s}",
        "{1: %s}",
        '{"x" => %s}',
        '{\n /* c */ "x": %s}',
        '<json>{\n  // c\n "p": %s\n}',
        "```json\n{p: %s}\n```",
        '{"a" => %s',
    ],
)
def test_a_value_inside_json_of_another_language_is_not_found(text):
    assert find_json(text % '{"name": "A"}', None) is None


@pytest.mark.parametrize("text", ["so {see below} %s", r"\boxed{%s}", "the set {0, 1} and %s", "[x notation. %s"])
def test_a_value_beside_brackets_of_prose_is_found(text):
    assert find_json(text % '{"name": "A"}', None) == {"name": "A"}
