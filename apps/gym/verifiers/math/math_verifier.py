"""Symbolic equality: the answer is mathematically equal to the expected expression."""

import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from apps.gym.answer_texts import extract_answer, find_line, holds_box, last_boxed, last_display, without_delimiters
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.math.differences import find_difference
from apps.gym.verifiers.math.formulas import (
    EQUALS,
    MAX_FORMULA,
    are_same,
    as_point,
    read_formula,
    rename_capitals,
    split_equation,
    squeeze,
    without_name,
)
from apps.gym.verifiers.math.numeric import is_hedged, parse_number
from apps.gym.verifiers.math.symbolic_values import are_close, can_be_equal
from apps.gym.verifiers.math.units import TEXT_WITH_POWER, split_unit
from apps.gym.verifiers.protocol import AnswerVerifier, Problem, answer_reward

_MOST_SIDES = 20
_COMMANDS = re.compile(r"\\(?:[dt]?frac|sqrt|cdot|times|div|left|right|pi|pm)(?![a-zA-Z])|(?<=\d)[eE](?=[+-]?\d)")
_TIMES_TEN = re.compile(r"(?<![\w.])(\d{1,60}(?:\.\d{1,60})?)[eE]([+-]?\d{1,4})(?![\w.])")
"""6.02e23 as programs write it. math-verify would read the e as a name."""
_DERIVATIVE = re.compile(r"\\frac\{(?:d|\\(p)artial )([a-zA-Z])\}\{(?:d|\\partial )([a-zA-Z])\}")
"""SymPy takes y for a constant in dy/dx, whose derivative is 0."""
_PROSE = re.compile(r"(?:^|[^\\a-zA-Z{])(?!(?:and|or|in|mod|ln|log|sqrt)\b)[a-zA-Z]{2,}|\$.*\$")
"""Unboxed answers with words or with formulas between dollar signs are sentences."""
_ENDS_SENTENCE = re.compile(r"(?P<before>[^$]*)\$(?P<formula>[^$]+)\$ ?[.!]?", re.DOTALL)
"""A sentence whose only formula ends it."""
_DROPPED = re.compile(r"\\(?:text|math|mbox)(?:rm|it|bf)?\s*\{.*\}(?:\^\d)?$", re.DOTALL)
"""math-verify takes all from the first word to the end for a unit."""
_WORDS = re.compile(rf"{TEXT_WITH_POWER.pattern}|\\(?:cdot|times|mu)(?![a-z])")

TEXT = "expected_is_text"
"""The detail of a reward whose expected answer cannot be read as mathematics."""


class Mathematics(AnswerVerifier, frozen=True, kw_only=True, tag="math"):
    r"""1.0 if the answer is mathematically equal to the expected answer, otherwise 0.0.

    Both are read as LaTeX and compared as numbers, expressions, equations, sets, intervals, matrices: \frac{1}{2} is
    0.5, (x+1)^2 is x^2+2x+1, {1,2} is {2,1}, 6.02e23 is 6.02 × 10^23. x ≡ 3 (mod 7) and other texts that cannot be read
    as mathematics are compared as text. In a chain of equations, the last side counts if its numbers agree. Decimals
    are equal if they agree after rounding, and differ by at most 10^-decimals of the expected number. The answer is the
    last box, otherwise `<answer>…</answer>`, otherwise the short answer after "Answer:", "The answer is" or `####`,
    otherwise the display formula at the end, otherwise the last line.

    Equal values are not enough if the two differ in upper and lower case, a relation sign, the base, the kind of
    brackets, a derivative, a prime, the unit or another word. Dates, times, scores and words are texts. A unit or a
    currency may be missing on one side. x = 1, y = 2 is the point (1, 2). An equation equals a number only if its left
    side is a name or a sum of names. The order of factors does not count, even of matrices.

    Some expressions take very long, so this runs in a process that is stopped at the time limit. The rollout then
    fails with `verifier_timeout` and has no reward, or is wrong with `too_slow: wrong`.

    Range: 0.0 or 1.0. Component: `math_equality`.
    """

    title: ClassVar[str] = "Symbolic mathematics"
    component = "math_equality"
    decimals: Annotated[int, Meta(ge=0, le=15, title="Decimals", description="Number of decimals to round to")] = 6
    relations_as_sets: Annotated[
        bool,
        Meta(title="Treat relations as sets", description="1 < x ≤ 2 then equals the interval (1, 2]"),
    ] = False

    def runs_on_loop(self, row: TaskRow) -> bool:
        return False

    @classmethod
    def prepare(cls) -> None:
        _parse("1")

    def find_problems(self) -> Iterator[Problem]:
        yield from super().find_problems()
        if len(str(self.expected)) > MAX_FORMULA:
            yield "/expected", f"has more than {MAX_FORMULA:,} characters, the maximum is lower"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self.find_expected(row)
        expected = read_formula(without_delimiters(last_boxed(wanted) or wanted))
        reward = partial(answer_reward, self.component, expected=wanted)
        written, is_formula = self._written(row, response)
        if written is None:
            return reward(0.0, f"no answer; expected {excerpt(wanted)}", answer=None)
        if len(written) > MAX_FORMULA:
            told = f"the answer has {len(written):,} characters, more than any expression needs"
            return reward(0.0, told, answer=excerpt(written))
        answer = read_formula(without_delimiters(written))
        shown = f"answer {excerpt(written)}" + (f" (read as {excerpt(answer)})" if answer != written else "")
        if are_same(expected, answer):
            return reward(1.0, f"{shown} equals expected {excerpt(wanted)}", answer=answer)
        difference, is_text = self._compare(expected, answer if is_formula else written, is_formula)
        verb = "is not" if difference else "equals"
        ending = f"; it differs in {difference}" if difference and difference != "value" else ""
        ending += "; it is no mathematics, so texts are compared" if is_text else ""
        told = f"{shown} {verb} expected {excerpt(wanted)}{ending}"
        found = reward(float(not difference), told, answer=answer)
        return msgspec.structs.replace(found, details={**found.details, TEXT: True}) if is_text else found

    def _written(self, row: TaskRow, response: dict[str, Any]) -> tuple[str | None, bool]:
        """Return the answer, and whether all of it is one formula."""
        if self.extract or extraction_mode(row):
            return self.find_answer(row, response), True
        text = assistant_text(response.get("output") or [])
        if (formula := last_boxed(text)) is not None or holds_box(text) or not (line := find_line(text)):
            return formula, True
        whole = without_delimiters(line.rstrip(" ."))
        if whole != line.rstrip(" .") or line == last_display(text):
            return whole, True
        sentence = _ENDS_SENTENCE.fullmatch(line.replace(r"\(", "$").replace(r"\)", "$"))
        if sentence:
            before, formula = sentence.groups()
            if not is_hedged(before + formula, len(before), len(before + formula)):
                return formula, True
        answer = extract_answer(text) or ""
        is_prose = _PROSE.search(answer) is not None
        return answer.replace(r"\$", "") if is_prose else answer, not is_prose

    def _compare(self, expected: str, answer: str, is_formula: bool) -> tuple[str, bool]:
        """Return in what the answer differs, empty if in nothing, and whether the expected answer is no mathematics."""
        if is_formula:
            expected, answer = _without_equal_sides(expected, answer)
            if expected.endswith(r"\%") != answer.endswith(r"\%"):
                bare, other = expected.removesuffix(r"\%"), answer.removesuffix(r"\%")
                number = parse_number(bare if bare != expected else other)
                if not number or number.percent:
                    return "a percent sign", False
                without = self._compare(bare, other, is_formula)
                if not without[0]:
                    return without
        bare, other = split_unit(expected)[0], split_unit(answer)[0] if is_formula else answer
        bare, other = rename_capitals(bare, other) if is_formula else (bare, other)
        mine, given = _parse(bare), _parse(other, is_formula=is_formula)
        is_text = all(isinstance(one, str) for one in mine)
        if not mine or not given or not can_be_equal(mine[0], given[0]) or not self._equal(mine, given):
            return "value", is_text
        plain, told = answer.replace("$", ""), str(given[-1])
        at = -1 if is_formula else plain.rfind(told)
        if at >= 0 and is_hedged(plain, at, at + len(told)):
            return "value", is_text
        # In a sentence, the formula that was found in it.
        found = answer if is_formula else read_formula(str(given[-1]))
        if told := find_difference(expected, found, relations_as_sets=self.relations_as_sets):
            return told, is_text
        is_close = are_close(mine[0], given[0], 10.0**-self.decimals) and self._holds(found)
        return "" if is_close else "value", is_text

    def _holds(self, written: str) -> bool:
        """Return True if all numbers in a chain of equations agree: the last one of 31 = 32 is no answer."""
        sides = EQUALS.split(written)
        numbers = [_parse(side) for side in sides if _is_number(side)] if 1 < len(sides) <= _MOST_SIDES else []
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
            ) or _is_multiple(expected[0], answer[0])
        except (MemoryError, RecursionError):
            raise
        except Exception:
            # Values that cannot be compared, for example a matrix and a number, are not equal.
            return False


def _is_number(text: str) -> bool:
    """Return True if the text has only numbers, without variables or words."""
    return any(map(str.isdigit, text)) and not re.search(r"[^\W\d_]", _COMMANDS.sub("", text))


def _without_equal_sides(expected: str, answer: str) -> tuple[str, str]:
    """Return the right sides of two equations with the same left side, or of the only one with a name before it.

    x = 1, y = 2 beside a point becomes a point.
    """
    expected, answer = as_point(expected, answer), as_point(answer, expected)
    (left, right), (other, given) = split_equation(expected), split_equation(answer)
    if left and other:
        return (right, given) if squeeze(left) == squeeze(other) else (expected, answer)
    return without_name(expected), without_name(answer)


def _is_multiple(expected: Any, answer: Any) -> bool:
    """Return True if two equations are the same apart from a factor."""
    from sympy import Eq, simplify

    if not isinstance(expected, Eq) or not isinstance(answer, Eq) or answer.lhs == answer.rhs:
        return False
    ratio = simplify((expected.lhs - expected.rhs) / (answer.lhs - answer.rhs))
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


def _parse(text: str, *, is_formula: bool = True) -> list[Any]:
    """Return the value of a formula and its text, only the text if it is no mathematics.

    In a sentence, math-verify searches for the last formula or number.
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    # The libraries log at every call that the caller must enforce a time limit, because their own uses signals in the
    # main thread.
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    latex = LatexExtractionConfig(boxed_match_priority=0)
    targets = [latex] if is_formula else [latex, ExprExtractionConfig()]
    if is_formula and (lost := _DROPPED.search(text)) and re.search(r"[\w\\+=<>]", _WORDS.sub("", lost[0])):
        return [text]
    text = _TIMES_TEN.sub(r"\1\\times 10^{\2}", _DERIVATIVE.sub(r"\2_{d\1\3}", text))
    return list(parse(rf"\boxed{{{text}}}" if is_formula else text, targets, parsing_timeout=None))
