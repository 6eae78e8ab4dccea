"""Tasks, players and cases of multiple choice: a player that knows the letter, and one that guesses."""

import random
from string import ascii_uppercase

from apps.gym.environments.mcqa.question_kinds import MAKERS, near_answers
from apps.gym.environments.task_generation import LEVELS, Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.text.multiple_choice import read_options

OPTIONS = 16
"""Guessing scores 1/16. With the usual ten options it would score as much as a weak model."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    question = dice.choice(MAKERS)(dice, LEVELS[difficulty])
    # The options depend only on the question. Otherwise one question could become two tasks, one in each split.
    dice = random.Random(question.text)
    values = [question.answer, *near_answers(dice, question, OPTIONS - 1)]
    dice.shuffle(values)
    options = {letter: question.write(value) for letter, value in zip(ascii_uppercase, values, strict=False)}
    listed = "\n".join(f"{letter}: {text}" for letter, text in options.items())
    prompt = f"{question.text}\n\n{listed}\n\nGive the letter of the right option in \\boxed{{}}."
    return {
        "responses_create_params": ask(prompt),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": ascii_uppercase[values.index(question.answer)],
        "grading_mode": "strict_single_letter_boxed",
    }


def _guess(seen: Seen) -> Move:
    return Move(text=f"\\boxed{{{seen.dice.choice(list(read_options(seen.row['options'], 'options')))}}}")


def _cases() -> list[Case]:
    row = {
        "responses_create_params": ask("Which is the largest?\n\nA: 1\nB: 3\nC: 2\n\nGive the letter in \\boxed{}."),
        "options": [{"A": "1"}, {"B": "3"}, {"C": "2"}],
        "expected_answer": "B",
    }
    return [
        Case(name="the letter in words", kind="full reward", row=row, play=say("Three: \\boxed{B}."), reward=1.0),
        Case(name="another letter", kind="zero reward", row=row, play=say("\\boxed{C}"), reward=0.0),
        Case(name="every letter", kind="malformed", row=row, play=say("\\boxed{A} \\boxed{B, C}"), reward=0.0),
        Case(name="the letter without its box", kind="malformed", row=row, play=say("B"), reward=0.0),
    ]


KIT = Kit(
    make_task=make_task,
    solve=lambda seen: Move(text=f"\\boxed{{{seen.row['expected_answer']}}}"),
    guess=_guess,
    cases=_cases,
)
