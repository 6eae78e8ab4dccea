"""Instruction-following tasks by seed: a topic, and constraints that can all be met at once."""

import random

from apps.gym.builtin.generating import Difficulty, ask
from apps.gym.builtin.instruction_following.constraints import MAKERS, TOPICS, Asked
from apps.gym.items import TaskRow
from apps.gym.verifiers.constraints import CONSTRAINTS

_COUNT: dict[Difficulty, tuple[int, int]] = {"easy": (2, 2), "medium": (3, 4), "hard": (5, 7)}


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    # Whoever writes the prompt again must not have followed it: some constraints, such as a keyword, it follows itself.
    while True:
        asked = _choose(dice, dice.randint(*_COUNT[difficulty]))
        topic = dice.choice(TOPICS)
        told = "\n".join(f"- {one.text}" for one in asked)
        prompt = f"Write a short text about {topic}.\n\n{told}"
        if not all(CONSTRAINTS[one.id].follows(prompt, one.arguments) for one in asked):
            return {
                "responses_create_params": ask(prompt),
                "instruction_id_list": [one.id for one in asked],
                "kwargs": [one.arguments for one in asked],
            }


def _choose(dice: random.Random, count: int) -> list[Asked]:
    chosen: dict[str, Asked] = {}
    while len(chosen) < count:
        one = dice.choice(MAKERS)(dice)
        chosen.setdefault(one.group, one)
    return list(chosen.values())
