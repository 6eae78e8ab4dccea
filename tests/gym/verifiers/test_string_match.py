import pytest

from tests.gym.verifiers.cases import REFUSED, reward_of

CASES = [
    ("Paris", "Final answer: paris.", 1.0),
    ("Paris", "Answer: Rome\nAnswer: Paris", 1.0),
    ("Paris", r"It is \boxed{Paris}", 1.0),
    ("Paris", r"\boxed{\text{Paris}}", 1.0),
    ("b", r"\boxed{a \boxed{b} c}", 1.0),
    ("Paris", "Final answer: Rome", 0.0),
    ("Paris", "Paris", 0.0),
    ("1,234", r"\boxed{1234}", 1.0),
    ("1,234,567", r"\boxed{1234567}", 0.98),
    ("0.5", r"\boxed{\frac{1}{2}}", 0.0),
    ("42", r"\boxed{42.0}", 1.0),
    ("42", r"\boxed{$42}", 1.0),
    ("42", r"\boxed{42%}", 0.98),
    ("100", r"\boxed{100.5}", 0.98),
    ("100", r"\boxed{102}", 0.0),
    ("0", r"\boxed{0.001}", 0.0),
    ("red, green, yellow and blue", r"\boxed{red; green, yellow, blue}", 1.0),
    ("red, green", r"\boxed{green, red}", 0.0),
    ("New York", r"\boxed{NY}", 1.0),
    ("wv", r"\boxed{West Virginia}", 1.0),
    ("5 km", r"\boxed{5}", 0.98),
    ("x km", r"\boxed{x}", 1.0),
    ("5", r"\boxed{6 km}", 0.0),
    ("90^\\circ", r"\boxed{90°}", 0.98),
    (r"\mathbf{yes} \(x\)", r"\boxed{yes $x$}", 1.0),
    ("'yes'", r"\boxed{yes}", 1.0),
    ("nan", r"\boxed{1}", 0.0),
    ("7", "", 0.0),
    ("7", r"\boxed{}", 0.0),
    ("7", r"\boxed{" + "9" * 100_000 + "}", 0.0),
    ("7", r"\boxed{" + "\\text{" * 20_000, 0.0),
    ("7", r"\boxed{" + "\\text{" * 20_000 + "}" * 20_001, 0.0),
    ("x", r"\boxed{\text{" + " " * 2_200 + "} x}", 1.0),
    ("x", r"\boxed{\text{\text{ x } }}", 1.0),
    (None, r"\boxed{7}", REFUSED),
]


@pytest.mark.parametrize(("expected", "reply", "reward"), CASES)
def test_string_match(expected, reply, reward):
    assert reward_of({"type": "string_match"}, {"expected_answer": expected}, reply) == reward


@pytest.mark.parametrize(
    ("given", "row", "reply", "reward"),
    [
        ({"case_sensitive": True}, {"expected_answer": "Paris"}, r"\boxed{paris}", 0.0),
        ({}, {"expected_answer": "Paris", "case_sensitive": True}, r"\boxed{paris}", 0.0),
        ({}, {"expected_answer": "Paris", "extraction_mode": "last_line"}, "so\nParis", 1.0),
        ({"extract": "full_response"}, {"expected_answer": "Paris"}, " paris ", 1.0),
    ],
)
def test_the_row_says_how_it_is_read(given, row, reply, reward):
    assert reward_of({"type": "string_match", **given}, row, reply) == reward
