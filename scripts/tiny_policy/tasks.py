"""The tasks: sums of one or two steps over small whole numbers, in the demo's words. One in ten is held out."""

import random
from typing import Any
from zlib import crc32

import msgspec

SYSTEM_PROMPT = (
    "You are a careful assistant. Use the calculator tool for arithmetic and give the final answer in \\boxed{}."
)
"""The demo's own."""

QUESTIONS = ("What is {}?", "Compute {}.", "How much is {}?", "Please calculate {}.")
WITHOUT_SYSTEM_PROMPT = 0.2
"""The share of tasks that come without one."""


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """An expression; for one of two steps also its inner part, and what is left with `{}` for the inner value."""

    expression: str
    inner: str = ""
    outer: str = ""

    @property
    def is_held_out(self) -> bool:
        """Decided by the expression alone, so that no seed can bring a held-out one into the training."""
        return crc32(self.expression.encode()) % 10 == 0


def draw_sum(dice: random.Random) -> Sum:
    """One in three has one step; the two-step shapes are the demo's four and two more."""
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
    """A sum, held out or not or (None) either, and the messages that pose it."""
    drawn = draw_sum(dice)
    while held_out is not None and drawn.is_held_out != held_out:
        drawn = draw_sum(dice)
    question = {"role": "user", "content": dice.choice(QUESTIONS).format(drawn.expression)}
    if dice.random() < WITHOUT_SYSTEM_PROMPT:
        return drawn, [question]
    return drawn, [{"role": "system", "content": SYSTEM_PROMPT}, question]


def draw_rows(count: int, *, seed: int, held_out: bool | None = None) -> list[dict[str, Any]]:
    """Task rows for the calculator environment; the same seed draws the same rows."""
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
    """By the calculator's own arithmetic."""
    from apps.gym.arithmetic import evaluate

    return evaluate(expression)
