"""String match in degrees, by the rules of NeMo Gym's server: equal texts, equal and nearly equal numbers."""

import math
import re
import unicodedata
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.items import TaskRow, assistant_text
from apps.gym.rewards import Reward
from apps.gym.verifiers.answering import AnswerVerifier
from apps.gym.verifiers.answers import excerpt, extract_answer, extraction_mode
from apps.gym.verifiers.states import STATES

SOFT = 0.98
"""What a number that is nearly the expected one gives, and how near it must be: (1 − relative error)² above this."""

_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]{1,40})\}\s*\{([^{}]{1,40})\}")
_COMMAND = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}|\\(?:left|right|,|!|;|quad|displaystyle)")
_NUMBER = re.compile(r"[+-]?(?:\d{1,200}(?:\.\d{0,200})?|\.\d{1,200})(?:e[+-]?\d{1,3})?")
_QUANTITY = re.compile(r"([+-]?(?:\d{1,200}(?:\.\d{0,200})?|\.\d{1,200}))\s*([a-z°%µ/²³^0-9 ]{0,40})")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")


class StringMatch(AnswerVerifier, frozen=True, kw_only=True, tag="string_match"):
    """1.0 for an answer that is the expected one, 0.98 for a number that is nearly it, else 0.0.

    Where case matters, the texts must be equal. Else both are plain text (NFKC, no outer quotes, lower case, no `.!?`
    at the end) and equal as texts, as numbers, with separators of thousands, as simple LaTeX, as lists, as names of US
    states or their abbreviations, or less the unit behind a number. Numbers are nearly equal when (1 − relative
    error)² is above 0.98.

    Range: 0.0, 0.98 or 1.0. Component: `string_match`.
    """

    title: ClassVar[str] = "String match in degrees"
    case_sensitive: (
        Annotated[
            bool,
            Meta(title="Upper and lower case differ", description="Left out: as the row's `case_sensitive` says"),
        ]
        | None
    ) = None

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = self.find_expected(row)
        answer = self._answer(row, response)
        strict = row.get("case_sensitive") is True if self.case_sensitive is None else self.case_sensitive
        if answer is None:
            value = 0.0
        elif strict:
            value = float(answer == expected)
        else:
            value = compare(plain(answer), plain(expected))
        verb = {1.0: "is", SOFT: "is nearly"}.get(value, "is not")
        told = "no answer was given" if answer is None else f"answer {excerpt(answer)} {verb} {excerpt(expected)}"
        return Reward(
            value=value,
            components={"string_match": value},
            explanation=told,
            details={"extracted_answer": answer, "expected_answer": expected},
        )

    def _answer(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        if self.extract or extraction_mode(row):
            return self.find_answer(row, response)
        return extract_answer(assistant_text(response.get("output") or []), "final_answer")


def plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
        text = text[1:-1].strip()
    return " ".join(text.lower().rstrip(".!?").split())


def compare(answer: str, expected: str) -> float:
    """Both as `plain` gives them."""
    if answer == expected:
        return 1.0
    ours, theirs = _number(answer), _number(expected)
    if ours is not None and theirs is not None and ours == theirs:
        return 1.0
    if _same_list(answer, expected) or STATES.get(answer, answer) == STATES.get(expected, expected):
        return 1.0
    if _readable(answer) == _readable(expected):
        return 1.0
    if ours is not None and theirs is not None:
        return SOFT if _near(ours, theirs) else 0.0
    amount, wanted = _amount(answer), _amount(expected)
    # One of them has no unit, or both have the same.
    agree = amount and wanted and amount[0] == wanted[0] and (not amount[1] or not wanted[1] or amount[1] == wanted[1])
    return float(bool(agree))


def _readable(text: str) -> str:
    text = _COMMAND.sub(lambda match: match[1] or "", _FRACTION.sub(r"\1/\2", text))
    return "".join(text.replace("$", "").replace("{", "").replace("}", "").split())


def _number(text: str) -> float | None:
    written = _THOUSANDS.sub("", _readable(text)).removesuffix("\\%").removesuffix("%")
    if _NUMBER.fullmatch(written):
        return float(written)
    top, slash, bottom = written.partition("/")
    if slash and _NUMBER.fullmatch(top) and _NUMBER.fullmatch(bottom) and float(bottom):
        return float(top) / float(bottom)
    return None


def _near(answer: float, expected: float) -> bool:
    if not expected or not math.isfinite(answer) or not math.isfinite(expected):
        return False
    error = abs(answer - expected) / abs(expected)
    return error < 1 and (1 - error) ** 2 > SOFT


def _same_list(answer: str, expected: str) -> bool:
    """Lists of parts between commas, in any order, with or without brackets around."""
    ours, theirs = _parts(answer), _parts(expected)
    return len(theirs) > 1 and sorted(ours) == sorted(theirs)


def _parts(text: str) -> list[str]:
    inner = text.strip("[](){}").replace(" and ", ",")
    return [part.strip().strip("\"'") for part in inner.split(",") if part.strip()]


def _amount(text: str) -> tuple[float, str] | None:
    match = _QUANTITY.fullmatch(_THOUSANDS.sub("", text.replace("$", "").strip()))
    return (float(match[1]), match[2].strip()) if match else None
