"""Tasks: sums of one or two steps over small integers, phrased as in the demo. One in ten is held out."""

import random
from typing import Any
from zlib import crc32

import msgspec

SYSTEM_PROMPT = (
    "You are a careful assistant. Use the calculator tool for arithmetic and give the final answer in \\boxed{}."
)
"""Prompts of the demo."""

QUESTIONS = ("What is {}?", "Compute {}.", "How much is {}?", "Please calculate {}.")
WITHOUT_SYSTEM_PROMPT = 0.2
"""The share of tasks without a system prompt."""


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """An expression. With two steps, also its inner part, and the rest with `{}` in place of the inner value."""

    expression: str
    inner: str = ""
    outer: str = ""

    @property
    def is_held_out(self) -> bool:
        """Return True if the expression is held out.

        Depends on the expression alone, so that no seed can use it for training.
        """
        return crc32(self.expression.encode()) % 10 == 0


def draw_sum(dice: random.Random) -> Sum:
    """Return a random sum. One in three has one step; two-step sums have six shapes, four of them from the demo."""
    a, b, c = dice.randint(11, 99), dice.randint(11, 99), dice.randint(2, 9)
    if dice.random() < 1 / 3:
        operator = dice.choice("+-*")
        return Sum(expression=f"{a} {operator} {c if operator == '*' else b}")
    return dice.choice(
        [
            Sum(expression=f"({a} + {b}) * {c}", inner=f"{a} + {b}", outer=f"{{}} * {c}"),
            Sum(expression=f"({a} - {b}) * {c}", inner=f"{a} - {b}", outer=f"{{}} * {c}"),
            Sum(expression=f"{a} * {b} - {c}", inner=f"{a} * {b}", outer=f"{{}} - {c}"),
            Sum(expression=f"{a} * {c} + {b}", inner=f"{a} * {c}", outer=f"{{}} + {b}"),
            Sum(expression=f"{a} - {b} * {c}", inner=f"{b} * {c}", outer=f"{a} - {{}}"),
            Sum(expression=f"{a} + {b} - {c}", inner=f"{a} + {b}", outer=f"{{}} - {c}"),
        ]
    )


def draw_task(dice: random.Random, *, held_out: bool | None = None) -> tuple[Sum, list[dict[str, str]]]:
    """Return a sum (held out, not, or either for None) and the messages that pose it."""
    drawn = draw_sum(dice)
    while held_out is not None and drawn.is_held_out != held_out:
        drawn = draw_sum(dice)
    question = {"role": "user", "content": dice.choice(QUESTIONS).format(drawn.expression)}
    if dice.random() < WITHOUT_SYSTEM_PROMPT:
        return drawn, [question]
    return drawn, [{"role": "system", "content": SYSTEM_PROMPT}, question]


def draw_rows(count: int, *, seed: int, held_out: bool | None = None) -> list[dict[str, Any]]:
    """Return task rows for the calculator environment. The same seed returns the same rows."""
    dice = random.Random(seed)
    rows = []
    for number in range(count):
        drawn, messages = draw_task(dice, held_out=held_out)
        rows.append(
            {
                "id": f"sum-{seed}-{number}",
                "responses_create_params": {"input": messages},
                "expected_answer": str(value_of(drawn.expression)),
            }
        )
    return rows


def value_of(expression: str) -> int | float:
    """Return the value by the calculator's arithmetic."""
    from apps.gym.arithmetic import evaluate

    return evaluate(expression)
