import pytest

from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.choice_forms import read_forms

OPTIONS = {"options": [{"A": "Karyotyping"}, {"B": "PCR"}, {"C": "Southern blotting"}], "expected_answer": "B"}
LENIENT, COLON, MARKDOWN = (
    {"mode": mode} for mode in ("lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md")
)


def by_pattern(*patterns):
    return {"template_metadata": {"output_regex": list(patterns)}}


CASES = [
    ({}, {}, r"\boxed{B}", 1.0),
    ({}, {}, r"\boxed{b}", 1.0),
    ({}, {}, r"\boxed{\text{B}}", 1.0),
    ({}, {}, r"\boxed{B: PCR}", 1.0),
    ({}, {}, r"\boxed{B) PCR}", 1.0),
    ({}, {}, r"\boxed{A} no, \boxed{B}", 1.0),
    ({}, {}, r"\boxed{A}", 0.0),
    ({}, {}, r"\boxed{Z}", 0.0),
    ({}, {}, r"\boxed{PCR}", 0.0),
    ({}, {}, "B", 0.0),
    ({}, {}, "", 0.0),
    (LENIENT, {}, r"\boxed{it is PCR}", 1.0),
    (LENIENT, {}, r"\boxed{PCR or Karyotyping}", 0.0),
    (LENIENT, {}, r"\boxed{PCR or Southern blotting}", 0.0),
    (COLON, {}, "Answer: B\nAnswer: A", 1.0),
    (COLON, {}, "Answer: pcr", 1.0),
    (COLON, {}, "it is B", 0.0),
    (COLON, {}, "Answer: B) PCR", 1.0),
    (COLON, {}, r"Answer: \text{B}", 1.0),
    (MARKDOWN, {}, "**Answer:** A\n\n**Answer: B**", 1.0),
    (MARKDOWN, {}, "Answer: A or B", 0.0),
    (MARKDOWN, {}, "Answer: B) PCR", 1.0),
    ({}, {"grading_mode": "lenient_answer_colon"}, "Answer: B", 1.0),
    ({"mode": "lenient_boxed"}, {"grading_mode": "lenient_answer_colon"}, "Answer: B", 0.0),
    ({}, by_pattern(r"option (\w)"), "option A, no: Option b", 1.0),
    ({}, by_pattern(r"choose (.*)$"), "I choose PCR", 1.0),
    ({}, by_pattern(r"nothing like it"), r"\boxed{B}", 1.0),
    ({"pattern": r"=(\w)"}, {}, "=B", 1.0),
    ({"pattern": r"=(\w)"}, {}, "=B, =Cat", 1.0),
    ({"pattern": r"answer is \(?([A-Z])"}, {}, "The answer is (B), as the answer is certain.", 1.0),
    ({"pattern": r"answer is \(?([A-Z])"}, {}, "The answer is B. Or the answer is c.", 1.0),
    ({"pattern": r"(?i)answer is \(?([A-Z])"}, {}, "The answer is B. Or the answer is c.", 0.0),
    ({"pattern": r"Answer is (\w)"}, {}, "ANSWER IS B", 0.0),
    ({}, by_pattern(r"Answer is (\w)"), "ANSWER IS B", 1.0),
    ({}, {"options": ["Karyotyping", "PCR"]}, r"\boxed{B}", 1.0),
    ({}, {"options": {"A": "x", "B": "y"}}, r"\boxed{B}", 1.0),
    ({}, {"options": []}, r"\boxed{B}", REFUSED),
    ({}, {"options": None}, r"\boxed{B}", REFUSED),
    ({}, {"expected_answer": None}, r"\boxed{B}", REFUSED),
    ({}, {"expected_answer": 0}, r"\boxed{B}", REFUSED),
    ({}, {"expected_answer": "cat"}, r"\boxed{B}", REFUSED),
    ({}, {"expected_answer": "Z"}, r"\boxed{B}", REFUSED),
    ({}, {"expected_answer": " b "}, r"\boxed{B}", 1.0),
    ({}, {}, r"\boxed{B-A-C}", 0.0),
    ({}, {}, r"\boxed{B) or C)}", 0.0),
    ({}, {}, r"\boxed{B. A}", 0.0),
    ({}, {}, r"\boxed{B - as A is wrong}", 1.0),
    ({}, {}, r"\boxed{B. B}", 1.0),
    ({}, {"options": ["B", "C", "A"]}, r"\boxed{B: C}", 1.0),
    (MARKDOWN, {}, "Answer: B-A-C", 0.0),
    (MARKDOWN, {}, "Answer: B - A", 0.0),
    ({}, {"grading_mode": "by feeling"}, r"\boxed{B}", REFUSED),
    ({}, by_pattern("("), r"\boxed{B}", REFUSED),
    ({}, {"options": {"1": "x", "2": "1"}, "expected_answer": "1"}, r"\boxed{1}", 1.0),
    (COLON, {"options": ["m", "M"]}, "Answer: M", 1.0),
    (COLON, {"options": ["Rome", "rome"], "expected_answer": "A"}, "Answer: ROME", 0.0),
    (COLON, {"options": ["b", "a"], "expected_answer": "B"}, "Answer: a", 1.0),
    ({}, {"options": ["b", "a"], "expected_answer": "A"}, r"\boxed{a}", 0.0),
    (COLON, {}, "answer" + " " * 100_000 + ":", 0.0),
    (MARKDOWN, {}, "*" * 200_000, 0.0),
]


@pytest.mark.parametrize(("given", "row", "reply", "reward"), CASES)
def test_multiple_choice(given, row, reply, reward):
    assert reward_of({"type": "multiple_choice", **given}, {**OPTIONS, **row}, reply) == reward


@pytest.mark.parametrize("form", read_forms(), ids=lambda form: f"{form.mode}-{form.expected}-{form.reply[:40]}")
def test_a_form_of_a_reply(form):
    row = {"options": form.options, "expected_answer": form.expected, "template_metadata": form.metadata}
    assert reward_of({"type": "multiple_choice", "mode": form.mode}, row, form.reply) == form.reward
