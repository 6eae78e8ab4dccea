"""Structured-output tasks by seed: a text, the schema of what is asked of it, and the object that is right."""

import random

from apps.gym.environments.structured_output.texts import ASIDES, MAKERS
from apps.gym.environments.task_generation import Difficulty, ask
from apps.gym.traces.items import TaskRow, dump_json

_LEVEL: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    level = _LEVEL[difficulty]
    text = dice.choice(MAKERS)(dice, level)
    sentences = list(text.sentences)
    for aside in dice.sample(ASIDES, level - 1):
        sentences.insert(dice.randint(1, len(sentences)), aside)
    told = " ".join(sentences)
    schema = dump_json(text.schema)
    prompt = (
        f"{told}\n\nWrite what this text tells as JSON that fits the following schema, copying names as they stand in "
        f"the text. Reply with the JSON alone.\n\n{schema}"
    )
    return {"responses_create_params": ask(prompt), "schema_str": schema, "expected_output": text.value}
