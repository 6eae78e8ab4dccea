"""Instruction-following tasks by seed: a topic, and constraints that can all be met at once, by no text for many."""

import random
from math import prod

from apps.gym.environments.instruction_following.constraints import MAKERS, TOPICS, Asked
from apps.gym.environments.task_generation import Difficulty, ask
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS

_COUNT: dict[Difficulty, tuple[int, int]] = {"easy": (2, 2), "medium": (3, 4), "hard": (5, 7)}
MOST_CHANCE = 0.07
"""Constraints are drawn by themselves, so who always gives one text meets all those of a task with the product of their
chances at most: no text, however long it was looked for, has a higher mean reward than this."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    # Whoever writes the prompt again must not have followed it: some constraints, such as a keyword, it follows itself.
    while True:
        topic = dice.choice(sorted(TOPICS))
        asked = _choose(dice, topic, dice.randint(*_COUNT[difficulty]))
        checks = [check for one in asked for check in one.checks]
        told = "\n".join(f"- {one.text}" for one in asked)
        prompt = f"Write a short text about {topic}.\n\n{told}"
        if not all(CONSTRAINTS[name].follows(prompt, given) for name, given in checks):
            return {
                "responses_create_params": ask(prompt),
                "instruction_id_list": [name for name, _ in checks],
                "kwargs": [given for _, given in checks],
            }


def _choose(dice: random.Random, topic: str, count: int) -> list[Asked]:
    while True:
        chosen: list[Asked] = []
        for maker in dice.sample(MAKERS, len(MAKERS)):
            one = maker(dice, topic)
            if not any(one.about & other.about for other in chosen):
                chosen.append(one)
            if len(chosen) == count:
                break
        if prod(one.chance for one in chosen) <= MOST_CHANCE:
            return chosen
