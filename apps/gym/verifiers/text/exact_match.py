"""Exact match: the answer equals the expected one after normalisation."""

import unicodedata
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.answering import AnswerVerifier

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
_TRAILING = ".!?,;:。！？"


def normalise(text: str, *, case_sensitive: bool = False, peel: bool = True) -> str:
    """NFKC, one space for any white space, case folded unless it matters; and peeled: no outer quotes, no trailing
    punctuation.

    A text of nothing but punctuation stays as it is, so that "?" can be an answer.
    """
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    for _ in range(4 if peel else 0):
        text = _peel(text) or text
    return text if case_sensitive else unicodedata.normalize("NFKC", text.casefold())


def _peel(text: str) -> str:
    text = text.rstrip(_TRAILING).strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text


class ExactMatch(AnswerVerifier, frozen=True, kw_only=True, tag="exact_match"):
    """1.0 when the answer equals the expected one, else 0.0.

    Both are compared after normalisation: NFKC, one space for any white space, no quotes around, no punctuation at the
    end, upper and lower case alike.

    Range: 0.0 or 1.0. Component: `exact_match`.
    """

    title: ClassVar[str] = "Exact match"
    case_sensitive: (
        Annotated[
            bool,
            Meta(title="Upper and lower case differ", description="Left out: as the row's `case_sensitive` says"),
        ]
        | None
    ) = None

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = self.find_expected(row)
        answer = self.find_answer(row, response)
        details = {"extracted_answer": answer, "expected_answer": expected}
        if answer is None:
            mode = self.extract or extraction_mode(row)
            wanted = " in a \\boxed{…}" if mode == "boxed" else ""
            return _reward(0.0, f"no answer was given{wanted}; expected {excerpt(expected)}", details)
        strict = row.get("case_sensitive") is True if self.case_sensitive is None else self.case_sensitive
        equal = normalise(answer, case_sensitive=strict) == normalise(expected, case_sensitive=strict)
        verb = "equals" if equal else "is not"
        return _reward(float(equal), f"answer {excerpt(answer)} {verb} expected {excerpt(expected)}", details)


def verify_exact_match(row: TaskRow, response: dict[str, Any]) -> Reward:
    """As the row's own `extraction_mode` and `case_sensitive` say; these names are those of NeMo Gym's string_match."""
    return _BY_ROW.verify(row, response)


def _reward(value: float, explanation: str, details: dict[str, Any]) -> Reward:
    return Reward(value=value, components={"exact_match": value}, explanation=explanation, details=details)


_BY_ROW = ExactMatch()
