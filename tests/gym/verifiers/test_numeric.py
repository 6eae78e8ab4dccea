from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.verifiers.math.numeric import Numeric, last_number, parse_number
from tests.deadlines import cpu_deadline
from tests.gym.verifiers.replies import response


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("1,234", 1234),
        ("1,234,567.5", Fraction("1234567.5")),
        ("1/2", Fraction(1, 2)),
        ("-3 / 4", Fraction(-3, 4)),
        ("3.0", 3),
        ("3.", 3),
        (".5", Fraction(1, 2)),
        ("−5", -5),
        ("+5", 5),
        ("1e-3", Fraction(1, 1000)),
        ("$1,200", 1200),
        ("\\$12", 12),
        ("€ 7", 7),
        ("\\frac{1}{2}", Fraction(1, 2)),
        ("-\\frac{3}{4}", Fraction(-3, 4)),
        ("½", Fraction(1, 2)),
        ("**42**", 42),
    ],
)
def test_a_number_is_read_exactly(text, value):
    number = parse_number(text)
    assert number is not None
    assert number.value == value
    assert not number.percent


@pytest.mark.parametrize(
    "text", ["", "four", "12 apples", "1,23", "1/0", "1.2.3", "x2", "nan", "inf", "1e9999", "9" * 1000]
)
def test_texts_without_a_number_give_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 42.", 42),
        ("6 * 7 = 42", 42),
        ("It costs $1,234.50.", Fraction("1234.5")),
        ("so -5 degrees", -5),
        ("1, 2 and 3", 3),
    ],
)
def test_the_last_number_of_a_sentence_is_found(text, value):
    number = last_number(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize("text", ["no digits", "version2", "1.2.3", "9" * 1000, "5/0"])
def test_a_sentence_without_a_number_has_none(text):
    assert last_number(text) is None


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("42", "42", 1.0),
        ("42.0", "42", 1.0),
        ("41", "42", 0.0),
        ("0.3333333", "1/3", 1.0),
        ("0.333", "1/3", 0.0),
        ("1000000", "1000001", 0.0),
        ("50%", "0.5", 1.0),
        ("50%", "50", 1.0),
        ("50", "50%", 1.0),
        ("50\\%", "50%", 1.0),
        ("0.5%", "50%", 0.0),
        ("5%", "50", 0.0),
        ("0", "0", 1.0),
        ("0.0000001", "0", 0.0),
        ("1e300", "1", 0.0),
        ("\\sqrt{3}", "3", 0.0),
        ("x^3", "3", 0.0),
        ("10^2", "2", 0.0),
        ("1+2", "2", 0.0),
        ("3 - 5", "-5", 0.0),
        ("5!", "5", 0.0),
        ("41, 42", "42", 0.0),
        ("5 or 6", "6", 0.0),
        ("2x", "2", 0.0),
        ("5 million", "5", 0.0),
        ("5000%", "50", 0.0),
        ("150%", "1.5", 1.0),
        ("x = 5", "5", 1.0),
        ("5 km", "5", 1.0),
        ("5\\text{ km/h}", "5", 1.0),
        ("5 m^2", "5", 1.0),
        ("90^\\circ", "90", 1.0),
        ("\\$4", "4", 1.0),
        ("5 USD", "5", 1.0),
        ("12 345 678 people a day", "12345678", 0.0),
        ("12 345 678 people", "12345678", 1.0),
        ("\\frac12", "1/2", 1.0),
        ("1 000", "1000", 1.0),
        ("1{,}000", "1000", 1.0),
        ("1 00", "100", 0.0),
        ("9" * 1_001, "9", 0.0),
    ],
)
def test_numbers_are_compared_by_value(answer, expected, reward):
    assert Numeric().verify({"expected_answer": expected}, response(f"\\boxed{{{answer}}}")).value == reward


def test_a_right_number_is_explained():
    assert Numeric().verify({"expected_answer": 42}, response("6 * 7", "That makes\n42.0")) == Reward(
        value=1.0,
        components={"numeric_correctness": 1.0},
        explanation='answer "42.0" equals expected 42',
        details={"extracted_answer": "42.0", "expected_answer": "42"},
    )


def test_a_wrong_or_missing_number_is_explained():
    row = {"expected_answer": "42"}
    assert Numeric().verify(row, response("41")).explanation == 'answer "41" is not expected 42'
    assert Numeric().verify(row, response("many")).explanation == 'answer "many" is not a number; expected 42'
    assert Numeric().verify(row, {"output": []}).explanation == "no answer; expected 42"
    assert Numeric().verify(row, response("9" * 5000)).value == 0.0


def test_a_row_may_bring_its_own_tolerance():
    row = {"expected_answer": "3.14", "tolerance": 0.01}
    assert Numeric().verify(row, response("3.145")).value == 1.0
    assert Numeric().verify(row, response("3.2")).value == 0.0
    assert Numeric().verify({**row, "tolerance": 0.5}, response("3.64")).value == 1.0
    with pytest.raises(VerifierError, match="`tolerance`"):
        Numeric().verify({**row, "tolerance": -1}, response("3"))
    with pytest.raises(VerifierError, match="`tolerance`"):
        Numeric().verify({**row, "tolerance": float("inf")}, response("3"))


def test_a_row_without_a_number_to_expect_is_an_error_and_no_zero():
    with pytest.raises(VerifierError, match="`expected_answer`"):
        Numeric().verify({}, response("4"))
    with pytest.raises(VerifierError, match="is not a number: 'Paris'"):
        Numeric().verify({"expected_answer": "Paris"}, response("4"))


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_every_whole_number_equals_itself_in_any_spelling(number):
    for spelling in (str(number), f"{number:,}", f"{number}.0", f"the result is {number}"):
        assert Numeric().verify({"expected_answer": number}, response(spelling)).value == 1.0
        assert Numeric().verify({"expected_answer": number + 1}, response(spelling)).value == 0.0


@given(st.text(alphabet="0123456789.,/-+eE%$ \\frac{}x−½", max_size=80))
def test_any_text_is_read_without_an_exception(text):
    last_number(text)
    parse_number(text)


@pytest.mark.parametrize("hostile", [" ", "1", "1,234", "1/", "\\frac{1}{", "- ", "$ "])
def test_long_hostile_text_is_read_quickly(hostile):
    text = "a" + hostile * (200_000 // len(hostile)) + "b"
    with cpu_deadline():
        last_number(text)
