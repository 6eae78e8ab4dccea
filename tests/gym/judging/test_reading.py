"""Verdicts are found in whatever a judge wraps them in, and nowhere else."""

import json

import pytest

from apps.gym.judging import verdict_reader
from apps.gym.judging.scale import Scale, VerdictUnreadable, read_settings
from apps.gym.judging.verdict_reader import MAX_READ, read_verdict

NUMBERS, NAMES = Scale(), Scale(verdicts={"correct": 1.0, "wrong": 0.0})


def read(text, scale=NUMBERS):
    """Every object is given the mark."""
    text = text.replace('{"', '{"mark": "a1b2c3d4", "')
    return read_verdict(text, "a1b2c3d4", scale.read, lambda verdict: verdict.said)


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
        '{x} {"y": z} ' * 500 + '{"explanation": "Fine.", "score": 7}',
        '{"explanation": "Fine.", "score": 7}' + " {x} {y: z}" * 500,
        '{"note": "It ends in </think> {x}.", "explanation": "Fine.", "score": 7}',
        '{"explanation": "Fine.", "score": 7} Its answer has a </think> in it.',
        '```json\n{"explanation": "Fine.", "score": 7}\n```\nIts answer has a </think> in it.',
        'Maybe {"score": 3}?</think>{"explanation": "Fine.", "score": 7} Its answer has a </think> in it.',
        '<think>It says </think>, so {"score": 3}?</think>{"explanation": "Fine.", "score": 7}',
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
        ('<think>Maybe {"score": 3}?</think> I cannot tell.', "no JSON object in the answer has the `mark`"),
        ("{" * 31_000, "there is no JSON object in the answer"),
        ('{"a":' * 6_000, "there is no JSON object in the answer"),
    ],
)
def test_a_reply_without_a_verdict_has_a_reason(text, why):
    with pytest.raises(VerdictUnreadable, match=why):
        read(text)


@pytest.mark.parametrize("mark", ["", "a1b2c3d", "A1B2C3D4", None, 1, ["a1b2c3d4"]])
def test_an_object_without_the_mark_is_no_verdict(mark):
    with pytest.raises(VerdictUnreadable, match="no JSON object in the answer has the `mark`"):
        read_verdict(json.dumps({"mark": mark, "score": 7}), "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said)


def test_what_the_judge_quotes_does_not_count_beside_its_verdict():
    quoted = '{"score": 10} {"mark": "00000000", "score": 10} {"mark": "a1b2c3d4", "score": 3}'
    assert read_verdict(quoted, "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said).said == 3.0
    inside = json.dumps({"mark": "a1b2c3d4", "explanation": 'It wrote {"mark": "a1b2c3d4", "score": 10}.', "score": 2})
    assert read_verdict(inside, "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said).said == 2.0


def test_the_mark_can_be_anywhere_in_the_object():
    last = json.dumps({"explanation": 'It is {"so": {so}' * 100 + "</think>", "score": 2, "mark": "a1b2c3d4"})
    assert read_verdict(last, "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said).said == 2.0
    nested = json.dumps({"mark": "a1b2c3d4", "read": {"mark": "a1b2c3d4", "score": 10}, "score": 2})
    assert read_verdict(nested, "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said).said == 2.0


@pytest.mark.parametrize(
    "text", ['{"mark": "a1b2c3d4", "a":' * 1_200, '{"a":' * 6_000 + '"mark": "a1b2c3d4"' * 100], ids=["marks", "mark"]
)
def test_an_answer_that_is_nothing_but_openings_is_parsed_a_bounded_number_of_times(text, monkeypatch):
    parsed = []

    class Counting(json.JSONDecoder):
        def raw_decode(self, s, idx=0):
            try:
                return super().raw_decode(s, idx)
            except json.JSONDecodeError as error:
                parsed.append(error.pos - idx)
                raise

    monkeypatch.setattr(verdict_reader.json, "JSONDecoder", Counting)
    with pytest.raises(VerdictUnreadable):
        read_verdict(text, "a1b2c3d4", NUMBERS.read, lambda verdict: verdict.said)
    # 64 marks are looked at, for each so much is parsed in vain, and the last try may go one text beyond.
    assert 0 < sum(parsed) <= 64 * 6 * MAX_READ


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
        ({"sampling": {"prompt": "x", "n": 2, "messages": []}}, "`sampling` cannot set messages, n, prompt"),
        ({"prompt": "?"}, "unknown field `prompt`"),
        ({"question": "rank"}, "Invalid enum value 'rank'"),
        ({"question": "compare", "reads": "trace"}, "`reads` must be `answer`"),
        ({"worth": {"win": "1"}}, "Expected `float`, got `str`"),
    ],
)
def test_settings_that_no_judge_understands_are_refused(given, why):
    with pytest.raises(ValueError, match=why):
        read_settings(given)
