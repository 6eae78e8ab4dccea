"""What the script can do by rule."""

import pytest

from apps.gym.wires.scripted_answers import answer_question, combine, compute, find_expressions
from tests.deadlines import cpu_deadline


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("What is (17 + 5) * 3?", ["66"]),
        ("Compute: 3.5*2, then 7 - -2.", ["7", "9"]),
        ("Today is 2023-11-30. What is 12 times 7?", ["84"]),
        ("(compute 3 + 4)", ["7"]),
        ("What is the sum of (3 + 4) * 2 and 10 - 6?", ["14", "4"]),
        ("What is $2^{10}$?", ["1024"]),
        ("1,234 + 1", ["1235"]),
        ("10 divided by 4", ["2.5"]),
        ("((2+3)*4)-(6/2)", ["17"]),
        ("-3 + 5", ["2"]),
        ("What is 7 x 8?", ["56"]),
        ("There are 5 apples.", []),
        ("What happened in (2023)?", []),
        ("1 / 0", []),
    ],
)
def test_expressions_are_found_in_prose(text, values):
    assert [compute(expression) for expression in find_expressions(text)] == values


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is the sum of 3+4 and 1+1?", "9"),
        ("What is the product of 3+4 and 1+1?", "14"),
        ("What is the difference between 3+4 and 1+1?", "5"),
        ("Which is larger: 3+4 or 1+1?", "7"),
        ("Which is smaller: 3+4 or 1+1?", "2"),
        ("Compute 3+4 and 1+1.", "7, 2"),
    ],
)
def test_parts_are_joined_by_the_word_that_joins_them(prompt, answer):
    assert combine([compute(expression) for expression in find_expressions(prompt)], prompt) == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the capital of France?", "Paris"),
        ("What is the capital of New Zealand? Answer in a box.", "Wellington"),
        ("Spell 'hello' backwards.", "olleh"),
        ("Reverse the word stone", "enots"),
        ('How many letters are in "strawberry"?', "10"),
        ("How many times does the letter r appear in strawberry?", "3"),
        ("How many r's are in strawberry?", "3"),
        ("How many vowels are in banana?", "3"),
        ("Sort these words alphabetically: pear, apple, fig", "apple, fig, pear"),
        ("What day comes after Sunday?", "Monday"),
        ("Which month comes before January?", "December"),
        ("What is the last letter of house?", "e"),
        ("What is hello in upper case?", "HELLO"),
        ("What is the chemical symbol for gold?", "Au"),
        ("What is the capital of Atlantis?", None),
        ("Who are you?", None),
    ],
)
def test_small_questions_are_answered_by_rule(question, answer):
    assert answer_question(question) == answer


@pytest.mark.parametrize(
    "text", ["(" * 100_000, " " * 100_000, "-" * 100_000, "1" * 100_000, "1 + " * 25_000, "capital of " * 9_000]
)
def test_a_prompt_of_any_shape_is_read_in_bounded_time(text):
    with cpu_deadline():
        find_expressions(text)
        answer_question(text)
