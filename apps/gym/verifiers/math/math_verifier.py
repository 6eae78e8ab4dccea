"""Symbolic equality: the answer is the expected expression, however it is written."""

import logging
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode, last_boxed, last_line
from apps.gym.verifiers.answering import AnswerVerifier, refuse
from apps.gym.verifiers.protocol import Problem

MAX_EXPRESSION = 10_000
"""Characters of an expression; more than any answer needs, and little enough for its grammar."""


_EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_MOST_SIDES = 20
_COMMANDS = re.compile(r"\\(?:[dt]?frac|sqrt|cdot|times|div|left|right|pi|pm)(?![a-zA-Z])|(?<=\d)[eE](?=[+-]?\d)")
_TIMES_TEN = re.compile(r"(?<![\w.])(\d{1,60}(?:\.\d{1,60})?)[eE]([+-]?\d{1,4})(?![\w.])")
"""6.02e23 as programs write it; math-verify would take the e for a name."""


class Mathematics(AnswerVerifier, frozen=True, kw_only=True, tag="math"):
    r"""1.0 when the answer and the expected one are the same expression in mathematics, else 0.0.

    Both are read as LaTeX or plain text and compared as numbers, expressions, equations, sets, intervals, matrices:
    \frac{1}{2} is 0.5, (x+1)^2 is x^2+2x+1, {1,2} is {2,1}, 6.02e23 is 6.02 × 10^23. Of a chain of equations the last
    side counts, if the numbers in it agree. Decimals are equal when they agree after rounding. The
    answer is the last box, else what the last line says.

    Some expressions take for ever. This runs in a process that is stopped at the time limit; the attempt then has no
    reward and the error `verifier_error`.

    Range: 0.0 or 1.0. Component: `math_equality`.
    """

    title: ClassVar[str] = "Symbolic mathematics"
    decimals: Annotated[int, Meta(ge=0, le=15, title="Decimals", description="To which decimals are rounded")] = 6
    relations_as_sets: Annotated[
        bool,
        Meta(title="Sets in place of relations", description="1 < x ≤ 2 is then the same as the interval (1, 2]"),
    ] = False

    def stays_on_loop(self, row: TaskRow) -> bool:
        return False

    def find_problems(self) -> Iterator[Problem]:
        yield from super().find_problems()
        if len(str(self.expected)) > MAX_EXPRESSION:
            yield "/expected", f"has more than {MAX_EXPRESSION:,} characters: no expression needs as many"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self.find_expected(row)
        expected = _parse(_box(wanted))
        if not expected:
            raise refuse(f"the task row's `{self.expected_field}` is no expression: {excerpt(wanted)}")
        written = self._written(row, response)
        if written is None:
            return _reward(0.0, f"no answer was given; expected {excerpt(wanted)}", wanted, None)
        if len(written) > MAX_EXPRESSION:
            told = f"the answer has {len(written):,} characters, more than any expression needs"
            return _reward(0.0, told, wanted, excerpt(written))
        answer = _parse(written)
        equal = bool(answer) and self._equal(expected, answer) and self._holds(written)
        verb = "equals" if equal else "is not"
        shown = str(answer[-1]) if answer else written
        return _reward(float(equal), f"answer {excerpt(shown)} {verb} expected {excerpt(wanted)}", wanted, shown)

    def _written(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        if self.extract or extraction_mode(row):
            answer = self.find_answer(row, response)
            return None if answer is None else _box(answer)
        text = assistant_text(response.get("output") or [])
        box = last_boxed(text)
        return last_line(text) if box is None else _box(box)

    def _holds(self, written: str) -> bool:
        """Whether the numbers agree that a chain of equations names: of 31 = 32 the last is no answer."""
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
            # Things that cannot be compared, such as a matrix and a number, are not equal.
            return False


def _is_number(text: str) -> bool:
    """Whether it is made of numbers alone, with no variable or word."""
    return any(map(str.isdigit, text)) and not re.search(r"[^\W\d_]", _COMMANDS.sub("", text))


def _box(text: str) -> str:
    r"""A whole text as one expression: math-verify looks for `\boxed{…}` and `$…$` in what it reads."""
    for opened, closed in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opened) and text.endswith(closed) and len(text) > len(opened) + len(closed):
            text = text[len(opened) : -len(closed)]
    return rf"\boxed{{{text.strip()}}}"


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    # It says at every call that without its own time limit (a signal, which needs the main thread) one must be kept.
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return list(parse(_TIMES_TEN.sub(r"\1\\times 10^{\2}", text), parsing_timeout=None))


def _reward(value: float, explanation: str, expected: str, answer: str | None) -> Reward:
    return Reward(
        value=value,
        components={"math_equality": value},
        explanation=explanation,
        details={"extracted_answer": answer, "expected_answer": expected},
    )
