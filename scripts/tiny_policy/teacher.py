"""The teacher: writes complete attempts with outputs of the real calculator environment, and marks what to learn."""

import json
import random
from typing import Any

import msgspec

from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.protocol import ToolRefused
from apps.gym.traces.items import dump_json

from .tasks import Sum, draw_task

STEP_BY_STEP = 0.4
"""The share of two-step sums with two calculator calls."""

SLIPS = 0.08
"""The share of attempts whose first call is invalid, rejected and corrected. The invalid call is not learned."""

SENTENCES = ("\\boxed{{{}}}", "The answer is \\boxed{{{}}}.")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A chat message. `learned` means that the model learns to write it."""

    message: dict[str, Any]
    learned: bool = False


def write_attempt(dice: random.Random) -> list[Turn]:
    """Return a complete conversation about a task that is not held out."""
    drawn, opening = draw_task(dice, held_out=False)
    calculator = Calculator({"responses_create_params": {"input": opening}})
    turns = [Turn(message=message) for message in opening]
    if dice.random() < SLIPS:
        turns += _slip(dice, drawn, calculator)
    if drawn.inner and dice.random() < STEP_BY_STEP:
        value = _calculate(drawn.inner, calculator, turns)
        value = _calculate(drawn.outer.format(value), calculator, turns)
    else:
        value = _calculate(drawn.expression, calculator, turns)
    answer = dice.choice(SENTENCES).format(value)
    return [*turns, Turn(message={"role": "assistant", "content": answer}, learned=True)]


def _calculate(expression: str, calculator: Calculator, turns: list[Turn]) -> str:
    output = calculator.call_tool("calculator", {"expression": expression})
    turns += [Turn(message=_call(expression), learned=True), Turn(message={"role": "tool", "content": output})]
    return str(json.loads(output)["result"])


def _slip(dice: random.Random, drawn: Sum, calculator: Calculator) -> list[Turn]:
    """Return a call with an additional operator or a missing bracket, and its rejection."""
    words = drawn.expression.split()
    place = dice.randrange(1, len(words))
    garbled = " ".join([*words[:place], dice.choice("*/"), *words[place:]])
    if "(" in garbled and dice.random() < 0.5:
        garbled = drawn.expression.replace(")", "", 1)
    try:
        calculator.call_tool("calculator", {"expression": garbled})
    except ToolRefused as refusal:
        # In the same form as the agent loop.
        output = dump_json({"error": str(refusal)})
        return [Turn(message=_call(garbled)), Turn(message={"role": "tool", "content": output})]
    return []


def _call(expression: str) -> dict[str, Any]:
    function = {"name": "calculator", "arguments": {"expression": expression}}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
