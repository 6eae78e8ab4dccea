"""Tasks, players and cases of structured output: a player that knows the object, and one that makes one up."""

import random
from typing import Any

import orjson

from apps.gym.environments.structured_output.texts import ASIDES, MAKERS
from apps.gym.environments.task_generation import LEVELS, Case, Difficulty, Kit, Move, ask, say
from apps.gym.traces.items import TaskRow, dump_json


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    level = LEVELS[difficulty]
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


def _make_up(schema: dict[str, Any], dice: random.Random) -> Any:
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if schema["type"] == "object":
        return {name: _make_up(one, dice) for name, one in schema["properties"].items()}
    if schema["type"] == "array":
        return [_make_up(schema["items"], dice) for _ in range(dice.randint(1, 3))]
    plain = {"integer": dice.randint(0, 100), "number": dice.randint(0, 10_000) / 100, "boolean": dice.random() < 0.5}
    dated = "2025-01-01" if "YYYY" in schema["description"] else "12:00" if "pattern" in schema else "something"
    return plain.get(schema["type"], dated) if isinstance(schema["type"], str) else dated


def _cases() -> list[Case]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "age": {"type": "integer"}}}
    row = {
        "responses_create_params": ask(f"Ines is 41 and lives in Porto. As JSON by {dump_json(schema)}"),
        "schema_str": dump_json(schema),
        "expected_output": {"city": "Porto", "age": 41},
    }
    fenced = 'Here it is:\n\n```json\n{"age": 41, "city": "Porto"}\n```'
    other = '{"age": 40, "city": "Porto"}'
    more = '{"age": 41, "city": "Porto", "name": "Ines"}'
    return [
        Case(name="in a fence, keys in any order", kind="full reward", row=row, play=say(fenced), reward=1.0),
        Case(name="fits, but tells otherwise", kind="zero reward", row=row, play=say(other), reward=0.0),
        Case(name="an extra field", kind="zero reward", row=row, play=say(more), reward=0.0),
        Case(
            name="a number as text", kind="malformed", row=row, play=say('{"age": "41", "city": "Porto"}'), reward=0.0
        ),
        Case(name="no JSON", kind="malformed", row=row, play=say('{"age": 41, "city": '), reward=0.0),
    ]


KIT = Kit(
    make_task=make_task,
    solve=lambda seen: Move(text=dump_json(seen.row["expected_output"])),
    guess=lambda seen: Move(text=dump_json(_make_up(orjson.loads(seen.row["schema_str"]), seen.dice))),
    cases=_cases,
)
