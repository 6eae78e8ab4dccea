"""Numeric correctness: the answer is the expected number, within a tolerance."""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from apps.gym.answer_texts import plain_characters, stands_in_box
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.math.units import CALCULATING, NUMBER_WORDS
from apps.gym.verifiers.protocol import AnswerVerifier, Problem, answer_reward, permanent_error

RELATIVE_TOLERANCE = Fraction(1, 1_000_000)

# Lengths are limited, because comparing a number of a million digits would block the event loop.
_MAX_DIGITS = 200
_DIGITS = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,60}}|\d{{1,{_MAX_DIGITS}}})"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d{{0,200}})?|\.\d{{1,200}})(?:[eE][+-]?\d{{1,3}})?"
_NUMBER = (
    rf"(?P<sign>[+-]?)\s*[$€£]?\s*(?P<top>{_DECIMAL})(?:\s*/\s*(?P<bottom>{_DECIMAL}))?(?:\s*(?P<percent>\\?%))?"
    r"(?: ?[€£])?"
)
_WHOLE = re.compile(rf"\s*{_NUMBER}\s*\.?\s*")
_BOXED = re.compile(rf"{_NUMBER}(?:\.$)?")
# Not inside a word or another number: the 2 of "x2" and the tail of an overlong number are not answers.
_ANYWHERE = re.compile(rf"(?<![\w.,/^{{])(?<!\d[-:])(?<!\^[-+]){_NUMBER}(?![\w/^]|[.,:-]\d)")
_RANGE = re.compile(
    r"(?:\d[\w.,%€£°]{0,20}(?: [a-z]{1,15})? ?(?:to|or|through)|\bbetween [^.]{1,40} and"
    r"|\b(?:negative|minus|(?:not|cannot|never|isn't)(?: (?!but\b)[a-z]{1,15}){0,2}|(?:less|more|greater|fewer) than"
    r"|log|ln|sqrt)"
    r"|\d[a-zA-Z] ?=|(?:=|[(\[{])[^()\[\]{}=]{1,20},"
    r"|\d ?\*|[<>≤≥≠√∛∜×+]|\\(?:ne|neq|le|leq|ge|geq|log|ln|sqrt|times|cdot)) ?[({]?$"
)
_FOLLOWED = re.compile(
    rf" ?(?:{'|'.join(NUMBER_WORDS)}|dozen|lakh|crore|quadrillion|factorial|k|squared|cubed|or (?:more|less|fewer))"
    r"(?:th)?s?\b| is (?:wrong|incorrect|not|false|too)\b| [-+·*] [a-zA-Z](?![a-zA-Z])"
    r"| ?(?:[√∛∜×π]|\*(?= ?\d)|\\(?:sqrt|times|cdot|pi)\b)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"(?<=\d)([^()\d]{0,40}) \([^()]{0,100}[a-z]{2}[^()]{0,100}\)\.?$", re.IGNORECASE)
"""Brackets with words at the end of a sentence with a number."""
_LONGEST_RANGE = 80
# Written as numbers with an exponent or as fractions, which the pattern of numbers reads.
_WORD = re.compile(rf"(?<=\d) ?({'|'.join(NUMBER_WORDS)})s?\b", re.IGNORECASE)
_MARKUP = [
    *((sign, "") for sign in ("\\left", "\\right", "\\!", "\\(", "\\)", "\\[", "\\]")),
    *((space, " ") for space in ("\\$", "\\,", "\\;", "\\ ")),
    *((command, "") for command in ("\\text", "\\mathrm", "\\mathbf", "\\boldsymbol")),
]
_BOLD = re.compile(r"(?<![\w*])\*{1,3}(?=[\w\\(-])|(?<=[\w)%.}])\*{1,3}(?!\s*[\w*(])")
_TIMES_TEN = re.compile(r"(?<=\d) ?(?:[×·*x]|times|\\times|\\cdot) ?10\^\{?([+-]?\d{1,3})\}?")
_PERCENT = re.compile(r"(?<=\d) ?per ?cent\b", re.IGNORECASE)
_POWER = re.compile(r"(?<![\w.,^{])(\d{1,30})\^\{?(\d{1,2})\}?(?![\d^])")
_MIXED = re.compile(r"(?<![\d.,/] )(?<![\w.,/])(\d{1,60}) (\d{1,60})/(\d{1,60})(?![\w/])")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_SPACED_THOUSANDS = re.compile(r"[+-]? ?[$€£]? ?\d{1,3}(?: \d{3}){1,60}(?=[^\d ,]|[ ,]?(?!\d)|$)")
_MAX_ANSWER = 1_000
# Allowed next to the number in a box: a variable or a currency before it, a unit after it. One-letter units must not be
# common variable names; words that imply a calculation are not units.
_LED = re.compile(r"(?:[A-Za-z]\w{0,20}(?:\([\w, ]{0,20}\))? ?=|[A-Z]{3}(?= )|\\approx|≈|~)? ?")
_CALCULATES = rf"and|e|i|or|pi|to|{CALCULATING}"
_UNIT = r"(?:[A-Za-zµμΩ°]{2,20}|[mgshlLJNWVAKCFdT])(?:\^?\{?-?\d\}?)?"
_MEASURED = re.compile(
    rf" ?(?:°|\^? ?\{{? ?\\circ ?\}}?|\^\{{?o\}}?) ?[CF]?| (?!(?i:{_CALCULATES})\b){_UNIT}"
    rf"(?:[ /·](?!(?i:{_CALCULATES})\b){_UNIT}){{0,3}}"
)


class Number(msgspec.Struct, frozen=True):
    """An exact value. `percent` is True if a percent sign followed it."""

    value: Fraction
    percent: bool = False

    @property
    def readings(self) -> tuple[Fraction, ...]:
        """Return the values that the number can mean.

        50 % can mean 0.5, or 50 if the question asks for a percentage. 5000 % never means 50.
        """
        if not self.percent:
            return (self.value,)
        return (self.value / 100, self.value) if abs(self.value) <= 1_000 else (self.value,)

    def equals(self, other: "Number", tolerance: Fraction | None = None) -> bool:
        if self.percent == other.percent:
            return _close(self.value, other.value, tolerance)
        return any(_close(mine, theirs, tolerance) for mine in self.readings for theirs in other.readings)


def _close(answer: Fraction, expected: Fraction, tolerance: Fraction | None) -> bool:
    """Compare two values. Integers must be equal; fractions may differ by rounding."""
    if tolerance is not None:
        return abs(answer - expected) <= tolerance
    if answer.denominator == expected.denominator == 1:
        return answer == expected
    # Near a large integer, other numbers may not differ by more than near 1.
    is_near_integer = 1 in (answer.denominator, expected.denominator) and abs(expected) > 1
    scale = Fraction(1) if is_near_integer else abs(expected)
    return abs(answer - expected) <= RELATIVE_TOLERANCE * scale


def parse_number(text: str) -> Number | None:
    """Return the number of a text: 1,234 · 1/2 · 3½ · −5 · 12% · $4 · \\frac{1}{2} · 10². None for other text."""
    if number := _digits_alone(text):
        return number
    match = _WHOLE.fullmatch(_plain(text))
    return None if match is None else _from_match(match)


def _digits_alone(text: str) -> Number | None:
    """Return the number of a text of digits, the usual answer, at a tenth of the cost of the patterns."""
    return Number(Fraction(int(text))) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else None


def last_number(text: str) -> Number | None:
    """Return the number if the whole text is one, else the last number in it.

    None without one, and if it ends a range or a choice: "5-12", "5 to 12", "5 or 12".
    """
    if number := _digits_alone(text):
        return number
    plain = _ASIDE.sub(r"\1", _plain(text))
    whole = _WHOLE.fullmatch(plain)
    matches = [whole] if whole else list(_ANYWHERE.finditer(plain))
    return None if not matches or is_hedged(plain, *matches[-1].span()) else _from_match(matches[-1])


def is_hedged(text: str, start: int, end: int) -> bool:
    """Return True if the number at this place ends a range or a choice, or is only a part of a calculation."""
    before = text[max(0, start - _LONGEST_RANGE) : start]
    is_operand = text[start : start + 1] in ("+", "-") and (before[-1:].isalnum() or before.rstrip()[-1:].isdigit())
    return is_operand or bool(_RANGE.search(before) or _FOLLOWED.match(text, end))


def _plain(text: str) -> str:
    text = plain_characters(text).replace("÷", "/")
    text = _LATEX_FRACTION.sub(r" \1\2/\3\4 ", text).replace("{,}", ",")
    if "\\" in text:
        for markup, instead in _MARKUP:
            text = text.replace(markup, instead)
    text = text.replace("$", " ").replace("~", " ")
    if "*" in text:
        text = _BOLD.sub("", text)
    # Single spaces keep the patterns linear.
    text = " ".join(text.split())
    if "^" in text:
        text = _POWER.sub(lambda found: str(int(found[1]) ** int(found[2])), _TIMES_TEN.sub(r"e\1", text))
    if "/" in text:
        text = _MIXED.sub(lambda found: f"{int(found[1]) * int(found[3]) + int(found[2])}/{found[3]}", text)
    if "cent" in text:
        text = _PERCENT.sub("%", text)
    text = _WORD.sub(lambda found: f"e{NUMBER_WORDS[found[1].lower()]}", text)
    spaced = _SPACED_THOUSANDS.match(text)
    return text[: spaced.end()].replace(" ", "") + text[spaced.end() :] if spaced else text


def boxed_number(text: str) -> Number | None:
    """Return the number of a box, or None.

    Only a unit, a currency or a variable may be next to it. Calculations and lists, for example 3 - 5, 5! or 41, 42,
    are not answers.
    """
    if number := _digits_alone(text):
        return number
    if len(text) > _MAX_ANSWER:
        return None
    plain = _plain(text)
    led = _LED.match(plain)
    rest = plain[led.end() :] if led else plain
    match = _BOXED.match(rest)
    if match is None or not (match.end() == len(rest) or _MEASURED.fullmatch(rest, match.end())):
        return None
    return _from_match(match)


def _from_match(match: re.Match[str]) -> Number | None:
    bottom = _fraction(match["bottom"] or "1")
    if not bottom:
        return None
    value = _fraction(match["top"]) / bottom
    return Number(-value if match["sign"] == "-" else value, percent=match["percent"] is not None)


def _fraction(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").removesuffix("."))


class Numeric(AnswerVerifier, frozen=True, kw_only=True, tag="numeric"):
    """1.0 if the answer equals the expected number, otherwise 0.0.

    A box must contain one number, which may have a unit, a currency or "x =" beside it: 1,234 · 1/2 · 3 1/2 · 3½ · −5 ·
    12 % · $4 · 5 km · 10² · 6.02 × 10^23 · 2 million. Other text is parsed as a number; if that fails, its last number
    is used, unless it ends a range (5-12) or a choice (5 or 12). 50 % is 0.5 or 50.

    With a tolerance, |answer − expected| may be up to the larger of the absolute tolerance and the relative tolerance ×
    |expected|. Without one, integers must be equal, and other numbers may differ by one part in a million.

    Range: 0.0 or 1.0. Component: `numeric_correctness`.
    """

    title: ClassVar[str] = "Number with tolerance"
    component = "numeric_correctness"
    absolute_tolerance: (
        Annotated[
            float,
            Meta(
                ge=0,
                title="Absolute tolerance",
                description="Maximum absolute difference. Default: `tolerance` of the row.",
            ),
        ]
        | None
    ) = None
    relative_tolerance: (
        Annotated[
            float,
            Meta(
                ge=0,
                title="Relative tolerance",
                description="Maximum difference relative to the expected number: 0.01 is 1 %",
            ),
        ]
        | None
    ) = None

    def find_problems(self) -> Iterator[Problem]:
        yield from super().find_problems()
        for name in ("absolute_tolerance", "relative_tolerance"):
            if not math.isfinite(getattr(self, name) or 0):
                yield f"/{name}", "must be finite"
        if self.expected is not None and parse_number(str(self.expected)) is None:
            yield "/expected", "is not a number. Examples: 42, 1/2, 0.5"

    def check_row(self, row: TaskRow) -> None:
        _, expected = self._read_expected(row)
        self._tolerance(row, expected)

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted, expected = self._read_expected(row)
        tolerance = self._tolerance(row, expected)
        text = assistant_text(response.get("output") or [])
        answer = self.extract_answer(row, text)
        reward = partial(answer_reward, self.component, answer=answer, expected=wanted)
        if answer is None:
            return reward(0.0, f"no answer; expected {wanted}")
        boxed = stands_in_box(text, self.extract or extraction_mode(row))
        number = boxed_number(answer) if boxed else last_number(answer)
        if number is None:
            return reward(0.0, f'answer "{excerpt(answer)}" is not a number; expected {wanted}')
        equal = number.equals(expected, tolerance)
        verb = "equals" if equal else "is not"
        return reward(float(equal), f'answer "{excerpt(answer)}" {verb} expected {wanted}')

    def _read_expected(self, row: TaskRow) -> tuple[str, Number]:
        wanted = self.find_expected(row)
        expected = parse_number(wanted)
        if expected is None:
            raise permanent_error(f"the task row's `{self.expected_field}` is not a number: {cut(wanted, 100)!r}")
        return wanted, expected

    def _tolerance(self, row: TaskRow, expected: Number) -> Fraction | None:
        """Return the wider of the given tolerances, or the row's, or None."""
        given = [] if self.absolute_tolerance is None else [Fraction(self.absolute_tolerance)]
        if self.relative_tolerance is not None:
            given.append(Fraction(self.relative_tolerance) * abs(expected.value))
        return max(given) if given else _row_tolerance(row)


def _row_tolerance(row: TaskRow) -> Fraction | None:
    given = row.get("tolerance")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise permanent_error("the task row's `tolerance` is not a number of 0 or more")
    return Fraction(given)
