"""Verdicts are found in whatever a judge wraps them in, and nowhere else."""

import json

import pytest

from apps.gym.judging.reading import read_verdict
from apps.gym.judging.scale import Scale, VerdictUnreadable
from apps.gym.judging.settings import read_settings

NUMBERS, NAMES = Scale(), Scale(verdicts={"correct": 1.0, "wrong": 0.0})


def read(text, scale=NUMBERS):
    return read_verdict(text, scale.read, lambda verdict: verdict.said)


@pytest.mark.parametrize(
    "text",
    [
        '{"explanation": "Fine.", "score": 7}',
        '{"score": 7.0, "explanation": "Fine.", "confidence": "high"}',
        '{"explanation": "Fine.", "score": "7"}',
        'Here it is:\n```json\n{"explanation": "Fine.", "score": 7}\n```\nThat is all.',
        '<think>Maybe {"score": 3}?</think>{"explanation": "Fine.", "score": 7}',
        'The answer used {braces} and {"a": 1}. {"explanation": "Fine.", "score": 7}',
        '{"explanation": "Fine.", "score": 7} {"explanation": "Fine.", "score": 7}',
        "x" * 100_000 + '{"explanation": "Fine.", "score": 7}',
    ],
)
def test_a_verdict_is_read(text):
    found = read(text)
    assert (found.said, found.value, found.explanation) == (7.0, 0.7, "Fine.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no JSON object in the answer"),
        ("7", "there is no JSON object in the answer"),
        ("[7]", "there is no JSON object in the answer"),
        ('{"score": 7', "there is no JSON object in the answer"),
        ('{"explanation": "Fine."}', "the object has no `score`"),
        ('{"score": 11}', "outside of that"),
        ('{"score": -0.1}', "outside of that"),
        ('{"score": true}', "not True"),
        ('{"score": null}', "not None"),
        ('{"score": "seven"}', "not 'seven'"),
        ('{"score": "nan"}', "not 'nan'"),
        ('{"score": 1e999}', "not inf"),
        ('{"score": NaN}', "there is no JSON object in the answer"),
        ('{"score": 1%s}' % ("0" * 4000), "outside|not"),
        ('{"score": [7]}', r"not \[7\]"),
        ('{"score": 2} no, {"score": 9}', "more than one verdict"),
        ("{" * 31_000, "there is no JSON object in the answer"),
        ('{"a":' * 6_000, "there is no JSON object in the answer"),
    ],
)
def test_what_is_no_verdict_says_why(text, why):
    with pytest.raises(VerdictUnreadable, match=why):
        read(text)


def test_named_verdicts_are_read_whatever_their_case_and_no_other_names():
    assert read('{"verdict": "CORRECT"}', NAMES).value == 1.0
    with pytest.raises(VerdictUnreadable, match="'fine' is not one of correct, wrong"):
        read('{"verdict": "fine"}', NAMES)
    with pytest.raises(VerdictUnreadable, match="1 is not one of correct, wrong"):
        read('{"verdict": 1}', NAMES)


def test_an_explanation_is_stored_whatever_it_holds():
    found = read(json.dumps({"explanation": "half \ud800 pair" + "x" * 9_000, "score": 7}))
    assert found.explanation.startswith("half ? pair")
    assert len(found.explanation) == 8_000
    assert read('{"explanation": 3, "score": 7}').explanation == ""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"scale": {"low": 5, "high": 5}}, "`low` must be below `high`"),
        ({"scale": {"verdicts": {"only": 1}}}, "two or more different names"),
        ({"scale": {"verdicts": {"a": 1, "A ": 0}}}, "two or more different names"),
        ({"scale": {"steps": 3}}, "unknown field `steps`"),
        ({"tries": 0}, "`tries` must be from 1 to 10"),
        ({"tries": "3"}, "Expected `int`, got `str`"),
        ({"reads": "mind"}, "Invalid enum value 'mind'"),
        ({"max_characters": 10}, "`max_characters` must be from 200"),
        ({"sampling": {"text": {}}}, "`sampling` cannot set text"),
        ({"prompt": "?"}, "unknown field `prompt`"),
    ],
)
def test_settings_that_no_judge_understands_are_refused(given, why):
    with pytest.raises(ValueError, match=why):
        read_settings(given)
