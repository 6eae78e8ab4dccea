"""Exact match: the answer equals the expected one after normalisation."""

import unicodedata
from typing import Any

from apps.gym.items import TaskRow, assistant_text
from apps.gym.rewards import Reward
from apps.gym.verifiers.answers import excerpt, expected_answer, extract_answer, extraction_mode

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
_TRAILING = ".!?,;:。！？"


def normalise(text: str, *, case_sensitive: bool = False) -> str:
    """NFKC, one space for any white space, no outer quotes, no trailing punctuation, case folded unless it matters.

    A text of nothing but punctuation stays as it is, so that "?" can be an answer.
    """
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    for _ in range(4):
        text = _peel(text) or text
    return text if case_sensitive else unicodedata.normalize("NFKC", text.casefold())


def _peel(text: str) -> str:
    text = text.rstrip(_TRAILING).strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text


def verify_exact_match(row: TaskRow, response: dict[str, Any]) -> Reward:
    """1.0 when the extracted answer equals the row's `expected_answer`, else 0.0.

    Row fields: `expected_answer`, and optionally `extraction_mode` (`boxed`, `last_line`, `final_answer`,
    `full_response`; without one the last box, else the last line) and `case_sensitive` (off by default). The field
    names are those of NeMo Gym's string_match. Raises VerifierError when the row cannot be verified against.
    """
    expected = expected_answer(row)
    mode = extraction_mode(row)
    case_sensitive = row.get("case_sensitive") is True
    answer = extract_answer(assistant_text(response.get("output") or []), mode)
    details = {"extracted_answer": answer, "expected_answer": expected}
    if answer is None:
        wanted = " in a \\boxed{…}" if mode == "boxed" else ""
        return _reward(0.0, f"no answer was given{wanted}; expected {excerpt(expected)}", details)
    equal = normalise(answer, case_sensitive=case_sensitive) == normalise(expected, case_sensitive=case_sensitive)
    verb = "equals" if equal else "is not"
    return _reward(float(equal), f"answer {excerpt(answer)} {verb} expected {excerpt(expected)}", details)


def _reward(value: float, explanation: str, details: dict[str, Any]) -> Reward:
    return Reward(value=value, components={"exact_match": value}, explanation=explanation, details=details)
