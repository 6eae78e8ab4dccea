"""Multiple-choice tasks by seed: a computed question, and sixteen options in a drawn order."""

import random
from string import ascii_uppercase

from apps.gym.environments.mcqa.question_kinds import LEVEL, MAKERS, near_answers
from apps.gym.environments.task_generation import Difficulty, ask
from apps.gym.traces.items import TaskRow

OPTIONS = 16
"""Guessing is worth 1/16. With ten options, as usual, it would be worth as much as what a weak model is worth."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    question = dice.choice(MAKERS)(dice, LEVEL[difficulty])
    # The options follow from the question: with others it would count as another task, and might be in both splits.
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
