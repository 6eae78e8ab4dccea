import json

import pytest

from apps.gym.strict_json import JsonRefused, load_strict


def refusal_of(text):
    with pytest.raises(JsonRefused) as refused:
        load_strict(text)
    return refused.value.code, refused.value.path


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.5, "ä", null, true]}',
        "[" * 100 + "]" * 100,
        '"[[[["',
        f"{2**64 - 1}",
        '{"": 1e308}',
        r'"\ud83d\ude00"',
    ],
)
def test_what_json_spells_and_a_database_stores_is_read(text):
    assert load_strict(text) == json.loads(text)


def test_brackets_in_texts_and_beside_each_other_are_not_depth():
    rows = [{"text": '{[\\"' * 50, "n": [number]} for number in range(200)]
    assert load_strict(json.dumps(rows)) == rows


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("[" * 101 + "]" * 101, "too_deep", ()),
        ('{"a": 1, "b\\u00e4": ' + "[" * 100 + "]" * 100 + "}", "too_deep", ("bä",)),
        ('{"a": {"b": ' * 100_000, "too_deep", ("a",)),
        ('{"\\ud800": ' + "[" * 100, "too_deep", ()),
        ('{"a": {"b": [0, 1e400]}}', "unstorable", ("a", "b", 1)),
        ("[NaN]", "unstorable", (0,)),
        ("-Infinity", "unstorable", ()),
        ("[1" + "0" * 100_000 + "]", "unstorable", (0,)),
        (f"[{-(2**63) - 1}]", "unstorable", (0,)),
        (r'{"a": "\u0000"}', "unstorable", ("a",)),
        (r'{"a": {"\udfff": 1}}', "unstorable", ("a",)),
        ('{"a": {"b": 1, "b": 2}}', "duplicate_key", ()),
        ("{", "not_json", ()),
        ("", "not_json", ()),
        ("{" * 100 + '"' + '\\"' * 200_000, "not_json", ()),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_nothing_could_follow_count_with_or_store_is_refused_with_its_place(text, code, path):
    assert refusal_of(text) == (code, path)


def test_a_text_that_never_ends_is_walked_once():
    assert refusal_of("[" * 60 + '"' + '\\"[' * 300_000) == ("not_json", ())
