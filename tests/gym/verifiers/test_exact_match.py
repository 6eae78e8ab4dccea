import pytest

from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.verifiers.text.exact_match import ExactMatch, normalise
from tests.gym.verifiers.replies import response


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris", "paris"),
        ("PARIS!", "paris"),
        ("“Paris.”", "Paris"),
        ('"Paris".', "Paris"),
        ("New   York\n City", "new york city"),
        ("ﬁne", "fine"),
        ("Ｐａｒｉｓ", "Paris"),
        ("STRASSE", "straße"),
        ("cafe\u0301", "café"),
    ],
)
def test_spellings_of_one_answer_are_one(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(("one", "other"), [("Paris", "Pariss"), ("3.0", "3"), ("?", "!"), ("can't", "cant")])
def test_different_answers_stay_different(one, other):
    assert normalise(one) != normalise(other)


def test_an_equal_answer_is_worth_one_and_says_so():
    assert ExactMatch().verify({"expected_answer": "42"}, response("Let me see.", "It is \\boxed{42}.")) == Reward(
        value=1.0,
        components={"exact_match": 1.0},
        explanation="answer 42 equals expected 42",
        details={"extracted_answer": "42", "expected_answer": "42"},
    )


def test_another_answer_is_worth_nothing_and_says_so():
    assert ExactMatch().verify({"expected_answer": "Paris"}, response("I think\nRome")) == Reward(
        value=0.0,
        components={"exact_match": 0.0},
        explanation="answer Rome is not expected Paris",
        details={"extracted_answer": "Rome", "expected_answer": "Paris"},
    )


def test_an_attempt_without_an_answer_is_worth_nothing():
    reward = ExactMatch().verify({"expected_answer": "Paris", "extraction_mode": "boxed"}, response("Paris"))
    assert reward.value == 0.0
    assert reward.explanation == "no answer in a \\boxed{…}; expected Paris"
    assert ExactMatch().verify({"expected_answer": "Paris"}, {"output": []}).details["extracted_answer"] is None


def test_what_tools_wrote_is_not_the_answer():
    assert ExactMatch().verify({"expected_answer": "999"}, response("before", "after")).value == 0.0


def test_case_matters_only_when_the_row_says_so():
    row = {"expected_answer": "pH", "extraction_mode": "last_line"}
    assert ExactMatch().verify(row, response("PH")).value == 1.0
    assert ExactMatch().verify({**row, "case_sensitive": True}, response("PH")).value == 0.0
    assert ExactMatch().verify({**row, "case_sensitive": True}, response("pH.")).value == 1.0


def test_a_row_that_cannot_be_verified_against_is_an_error_and_no_zero():
    with pytest.raises(VerifierError, match="`expected_answer`"):
        ExactMatch().verify({}, response("4"))
