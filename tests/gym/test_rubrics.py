"""What a rubric may ask, and what may be answered."""

import pytest

from apps.gym.rubric_criteria import check_scores, find_criteria_problem

NUMBER = {"key": "clear", "label": "Clear?", "kind": "numeric", "minimum": 0, "maximum": 1}
CHOICE = {"key": "tone", "label": "Tone?", "kind": "category", "choices": ["dry", "warm"]}
YES = {"key": "right", "label": "Right?", "kind": "boolean"}
WORDS = {"key": "why", "label": "Why?", "kind": "text"}


def test_all_four_kinds_make_a_rubric():
    assert find_criteria_problem([NUMBER, CHOICE, YES, WORDS]) == ""


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ("clear", "Give a list"),
        ([], "Give a list"),
        ([YES] * 31, "1 to 30"),
        (["clear"], "Criterion 1 is not an object"),
        ([YES, YES], "Criterion 2 repeats the key “right”"),
        ([{**YES, "kind": "stars"}], "has none of the kinds"),
        ([{**YES, "choices": ["a", "b"]}], "has an unknown setting “choices”"),
        ([{**YES, "key": "is it"}], "needs a key"),
        ([{**YES, "label": " "}], "needs a label"),
        ([{**YES, "required": "yes"}], "true or false"),
        ([{**YES, "label": "\x00"}], "cannot be stored"),
        ([{**NUMBER, "maximum": 0}], "a minimum below its maximum"),
        ([{**NUMBER, "maximum": float("inf")}], "cannot be stored"),
        ([{**NUMBER, "maximum": 1e300}], "within ±9,007,199,254,740,992"),
        ([{**CHOICE, "choices": ["dry"]}], "2 to 20 choices"),
        ([{**CHOICE, "choices": ["dry", "dry"]}], "repeats a choice"),
    ],
)
def test_what_cannot_be_asked_is_said(criteria, said):
    assert said in find_criteria_problem(criteria)


def test_scores_are_kept_as_given_and_words_may_be_missing():
    scores = {"clear": 0.5, "tone": "warm", "right": False}
    assert check_scores([NUMBER, CHOICE, YES, WORDS], scores) == (scores, {})


@pytest.mark.parametrize(
    ("criterion", "value"),
    [
        (NUMBER, 2),
        (NUMBER, "0.5"),
        (NUMBER, True),
        (NUMBER, float("nan")),
        (CHOICE, "cold"),
        (CHOICE, ["dry"]),
        (YES, 1),
        (YES, "true"),
        (WORDS, 5),
        (WORDS, "x" * 4001),
        (YES, None),
    ],
)
def test_a_score_of_another_kind_is_refused(criterion, value):
    criterion = {**criterion, "required": True}
    clean, wrong = check_scores([criterion], {criterion["key"]: value})
    assert (clean, list(wrong)) == ({}, [criterion["key"]])


def test_an_unrequested_score_is_refused():
    assert list(check_scores([YES], {"right": True, "other": 1})[1]) == ["other"]
