import pytest

from apps.gym.environments.protocol import all_replies, answered_replies
from apps.gym.environments.twenty_questions.environment import Questions, TwentyQuestions, read_guess, read_properties
from apps.gym.environments.twenty_questions.kit import questions_needed
from apps.gym.environments.twenty_questions.things import PROPERTIES, THINGS
from apps.gym.errors import EnvironmentFault
from apps.gym.traces.items import message
from tests.gym.verifiers.replies import attempt, says

ROW = {"responses_create_params": {"input": "?"}, "secret": "oak", "most_questions": 2}


def test_the_table_tells_all_things_apart():
    assert len(THINGS) == 146
    assert len(set(THINGS.values())) == 146
    assert set().union(*THINGS.values()) == set(PROPERTIES)
    assert max(questions_needed(thing, sorted(THINGS)) for thing in THINGS) <= 20


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_question_for_a_property_is_understood_as_it(name):
    assert read_properties(PROPERTIES[name][0]) == [name]


@pytest.mark.parametrize(
    ("question", "start"),
    [
        ("Is it a plant?", "Yes. "),
        ("Let me think about red things. Is it larger than me?", "Yes. "),
        ("IS IT AN ANIMAL?", "No. "),
        ("Is it a plant or an animal?", "One thing at a time"),
        ("Is it a plant? Is it green?", "One thing at a time"),
        ("Okay, no fur then. Is it a plant?", "Yes. "),
        ("Not an animal.\nIs it a plant? Please answer yes or no.", "Yes. "),
        ("Fine. Is it not a plant?", "Please ask without"),
        ("Isn't it a plant?", "Please ask without"),
        ("Is it nice?", "I do not understand"),
        ("", "I do not understand"),
    ],
)
def test_what_the_user_answers(question, start):
    answer = Questions("oak", 2).hear(question)
    assert (answer.startswith(start), answer.endswith("1 question left.")) == (True, True)


@pytest.mark.parametrize(
    ("reply", "guess"),
    [
        ("Guess: dog", "dog"),
        ("So:\n**Guess:** A Dog.", "dog"),
        ("Guess: cat\nGuess: the polar bear!", "polar bear"),
        ("Guess: cat, dog", "cat dog"),
        ("Guess:", ""),
        ("Is it a dog?", None),
    ],
)
def test_what_is_guessed(reply, guess):
    assert read_guess(reply) == guess


def test_the_last_answer_asks_for_the_guess_and_there_is_one_only():
    questions = Questions("oak", 1)
    answer = questions.hear("Is it a plant?")
    assert (answer.startswith("Yes. "), "must guess" in answer) == (True, True)
    assert questions.hear("Guess: rose") is None
    assert questions.hear("Guess: oak") is None
    assert (questions.right, questions.asked) == (False, 2)


def test_the_attempt_is_the_same_when_it_is_heard_again():
    environment = TwentyQuestions(ROW)
    [answer] = environment.respond([says("Is it a plant?")])
    assert (answer["role"], answer["content"].startswith("Yes. ")) == ("user", True)
    assert "1 question left" in answer["content"]
    assert environment.respond([says("Guess: oak")]) is None
    reward = environment.verify(attempt(says("Is it a plant?"), answer, says("Guess: oak")))
    assert (reward.value, reward.components) == (1.0, {"right": 1.0, "understood": 0.5, "questions": 2.0})
    assert TwentyQuestions(ROW).verify(attempt(says("Is it a plant?"), answer)).value == 0.0


def test_a_truncated_reply_is_not_a_question():
    made = attempt(says("Is it a plant?"), message("user", "Yes."), says("Guess: oak"))
    assert all_replies(made) == ["Is it a plant?", "Guess: oak"]
    assert all_replies({**made, "status": "incomplete"}) == answered_replies(made) == ["Is it a plant?"]


def test_a_row_that_is_no_game_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="`secret` must be one of the things"):
        TwentyQuestions({**ROW, "secret": "unicorn"}).respond([])
    with pytest.raises(EnvironmentFault, match="`most_questions` must be a number from 1 to 100"):
        TwentyQuestions({**ROW, "most_questions": 101}).respond([])
