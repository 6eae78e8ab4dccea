import pytest

from apps.gym.answer_texts import (
    extract_answer,
    final_answer,
    holds_answer,
    is_answer_of,
    is_same_text,
    last_boxed,
    last_line,
)
from apps.gym.errors import VerifierError
from apps.gym.verifiers.answer_extraction import expected_answer, extraction_mode
from tests.deadlines import cpu_deadline


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} and then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a \boxed{b} c}", r"a \boxed{b} c"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{1} but \boxed{2", "1"),
        (r"\boxed{open \boxed{5}", "5"),
        (r"} \boxed{8} }", "8"),
        (r"\boxed{}", ""),
        ("no box", None),
        ("", None),
    ],
)
def test_the_last_balanced_box_is_found(text, found):
    assert last_boxed(text) == found


def test_the_last_line_is_the_last_that_is_not_blank():
    assert last_line("first\n  second  \n\n") == "second"
    assert last_line(" \n ") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Final answer: Saturn", "Saturn"),
        ("First I thought final answer: 3.\n**Final Answer:** 15", "15"),
        ("**Final answer**: 15", "15"),
        ("The final answer is 12", "12"),
        ("The final answer is: twelve apples\nThank you", "twelve apples"),
        (r"That is my final answer! \boxed{9}", "9"),
        ("no such words", None),
    ],
)
def test_the_final_answer_follows_its_words_and_falls_back_to_the_box(text, found):
    assert final_answer(text) == found


def test_without_a_mode_the_box_goes_before_the_last_line():
    assert extract_answer("\\boxed{4}\nthe end") == "4"
    assert extract_answer("thinking\nthe end") == "the end"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Final answer: Saturn", "Saturn"),
        ("**Answer:** Saturn", "Saturn"),
        ("**Answer: Saturn**", "Saturn"),
        ("The answer is Saturn", "Saturn"),
        ("So the final answer is: Saturn", "Saturn"),
        ("Answer: Answer: a novel", "Answer: a novel"),
        ("The answer island", "The answer island"),
        ("Answers: two", "Answers: two"),
        ("Answer:", "Answer:"),
    ],
)
def test_a_label_before_the_answer_is_taken_off_the_last_line(line, found):
    assert extract_answer(f"thinking\n{line}") == found
    without_bold = line[2:-2] if line.endswith("**") else line
    assert extract_answer(f"thinking\n{line}", "last_line") == without_bold


def test_with_a_mode_nothing_else_is_tried():
    assert extract_answer("the end", "boxed") is None
    assert extract_answer("\\boxed{4}\nthe end", "last_line") == "the end"
    assert extract_answer(" a\nb ", "full_response") == "a\nb"


def test_markup_around_an_answer_is_taken_off():
    assert extract_answer(r"\boxed{\text{Paris}}") == "Paris"
    assert extract_answer("$$42$$") == "42"
    assert extract_answer(r"\(x\)") == "x"
    assert extract_answer(r"\[ x \]") == "x"
    assert extract_answer(r"\(") == r"\("
    assert extract_answer(r"\boxed{}") is None


@pytest.mark.parametrize("hostile", [r"\boxed{", "{", "\\", "final answer" + " " * 50, "final answer:\n\n\n"])
def test_long_hostile_text_is_read_in_one_pass(hostile):
    text = hostile * (1_000_000 // len(hostile))
    with cpu_deadline():
        extract_answer(text)
        extract_answer(text, "final_answer")


def test_a_row_without_an_expected_answer_names_the_field():
    with pytest.raises(VerifierError, match="`expected_answer`"):
        expected_answer({"responses_create_params": {}})


@pytest.mark.parametrize("given", [True, [], {}, "  "])
def test_an_expected_answer_that_is_no_answer_is_refused(given):
    with pytest.raises(VerifierError, match="`expected_answer`"):
        expected_answer({"expected_answer": given})


def test_an_expected_number_is_read_as_text():
    assert expected_answer({"expected_answer": 4}) == "4"
    assert expected_answer({"expected_answer": 0.5}) == "0.5"


def test_an_unknown_extraction_mode_is_refused_by_name():
    assert extraction_mode({}) is None
    assert extraction_mode({"extraction_mode": "last_line"}) == "last_line"
    with pytest.raises(VerifierError, match="`extraction_mode` is 'guess'"):
        extraction_mode({"extraction_mode": "guess"})


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("42", "I think.\n\nFinal answer: 42."),
        ("Final answer: 42", "42"),
        ("x", "It is \\boxed{x}"),
        ("So \\boxed{x}, I think", "It is \\boxed{x}"),
        ("Paris", "Thoughts.\nAnswer: Paris"),
    ],
)
def test_an_answer_is_found_in_a_text(answer, text):
    assert is_answer_of(answer, text)


@pytest.mark.parametrize(
    ("answer", "text"),
    [("\\boxed{4}\nTERMINATE", "\\boxed{5}\nTERMINATE"), ("```\na\n```", "```\nb\n```"), ("x\nBye", "Bye")],
)
def test_an_equal_last_line_is_no_equal_answer(answer, text):
    assert not is_answer_of(answer, text)
    assert not is_same_text(answer, text)


def test_json_is_compared_by_value():
    assert is_same_text('{"a": 1, "b": [2]}', '```json\n{"b":[2],"a":1}\n```')
    assert is_same_text("Paris", " PARIS. ")
    assert not is_same_text('{"a": 1}', '{"a": 2}')


def test_an_answer_is_not_held_as_a_part_of_a_word():
    assert [holds_answer(text, "42") for text in ("42", "(42)", "420 or 42", "420", "a42", "4 2")] == [
        *[True] * 3,
        *[False] * 3,
    ]
