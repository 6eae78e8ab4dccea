"""Symbolic equality: the answer is mathematically equal to the expected expression."""

import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.answer_texts import last_boxed, last_line
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.protocol import AnswerVerifier, Problem, answer_reward, permanent_error

MAX_EXPRESSION = 10_000
"""Maximum characters of an expression: more than any answer needs, and few enough for the parser."""


_EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_MOST_SIDES = 20
_COMMANDS = re.compile(r"\\(?:[dt]?frac|sqrt|cdot|times|div|left|right|pi|pm)(?![a-zA-Z])|(?<=\d)[eE](?=[+-]?\d)")
_TIMES_TEN = re.compile(r"(?<![\w.])(\d{1,60}(?:\.\d{1,60})?)[eE]([+-]?\d{1,4})(?![\w.])")
"""6.02e23 as programs write it. math-verify would read the e as a name."""


class Mathematics(AnswerVerifier, frozen=True, kw_only=True, tag="math"):
    r"""1.0 if the answer is mathematically equal to the expected answer, otherwise 0.0.

    Both are read as LaTeX or plain text and compared as numbers, expressions, equations, sets, intervals, matrices:
    \frac{1}{2} is 0.5, (x+1)^2 is x^2+2x+1, {1,2} is {2,1}, 6.02e23 is 6.02 × 10^23. In a chain of equations, the
    last side counts if its numbers agree. Decimals are equal if they agree after rounding. The answer is the last
    box, otherwise the last line.

    Some expressions take very long, so this runs in a process that is stopped at the time limit. The rollout then
    fails with `verifier_error` and has no reward.

    Range: 0.0 or 1.0. Component: `math_equality`.
    """

    title: ClassVar[str] = "Symbolic mathematics"
    decimals: Annotated[int, Meta(ge=0, le=15, title="Decimals", description="Number of decimals to round to")] = 6
    relations_as_sets: Annotated[
        bool,
        Meta(title="Treat relations as sets", description="1 < x ≤ 2 then equals the interval (1, 2]"),
    ] = False

    def runs_on_loop(self, row: TaskRow) -> bool:
        return False

    def find_problems(self) -> Iterator[Problem]:
        yield from super().find_problems()
        if len(str(self.expected)) > MAX_EXPRESSION:
            yield "/expected", f"has more than {MAX_EXPRESSION:,} characters, the maximum is lower"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self.find_expected(row)
        expected = _parse(_box(wanted))
        if not expected:
            raise permanent_error(f"the task row's `{self.expected_field}` is not an expression: {excerpt(wanted)}")
        reward = partial(answer_reward, "math_equality", expected=wanted)
        written = self._written(row, response)
        if written is None:
            return reward(0.0, f"no answer; expected {excerpt(wanted)}", answer=None)
        if len(written) > MAX_EXPRESSION:
            told = f"the answer has {len(written):,} characters, more than any expression needs"
            return reward(0.0, told, answer=excerpt(written))
        answer = _parse(written)
        equal = bool(answer) and self._equal(expected, answer) and self._holds(written)
        verb = "equals" if equal else "is not"
        shown = str(answer[-1]) if answer else written
        return reward(float(equal), f"answer {excerpt(shown)} {verb} expected {excerpt(wanted)}", answer=shown)

    def _written(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        if self.extract or extraction_mode(row):
            answer = self.find_answer(row, response)
            return None if answer is None else _box(answer)
        text = assistant_text(response.get("output") or [])
        box = last_boxed(text)
        return last_line(text) if box is None else _box(box)

    def _holds(self, written: str) -> bool:
        """Return True if all numbers in a chain of equations agree: the last one of 31 = 32 is no answer."""
        sides = _EQUALS.split(written.removeprefix("\\boxed{").removesuffix("}"))
        numbers = [_parse(_box(side)) for side in sides if _is_number(side)] if 1 < len(sides) <= _MOST_SIDES else []
        return all(self._equal(numbers[0], other) for other in numbers[1:])

    def _equal(self, expected: list[Any], answer: list[Any]) -> bool:
        from math_verify import verify

        try:
            return bool(
                verify(
                    expected,
                    answer,
                    float_rounding=self.decimals,
                    allow_set_relation_comp=self.relations_as_sets,
                    timeout_seconds=None,
                    raise_on_error=True,
                )
            )
        except (MemoryError, RecursionError):
            raise
        except Exception:
            # Values that cannot be compared, for example a matrix and a number, are not equal.
            return False


def _is_number(text: str) -> bool:
    """Return True if the text has only numbers, without variables or words."""
    return any(map(str.isdigit, text)) and not re.search(r"[^\W\d_]", _COMMANDS.sub("", text))


def _box(text: str) -> str:
    r"""Return a whole text as one expression, because math-verify searches for `\boxed{…}` and `$…$`."""
    for opened, closed in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opened) and text.endswith(closed) and len(text) > len(opened) + len(closed):
            text = text[len(opened) : -len(closed)]
    return rf"\boxed{{{text.strip()}}}"


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    # The libraries log at every call that the caller must enforce a time limit, because their own uses signals in the
    # main thread.
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return list(parse(_TIMES_TEN.sub(r"\1\\times 10^{\2}", text), parsing_timeout=None))
