"""String match in degrees, by the rules of NeMo Gym's server: equal texts, equal and nearly equal numbers."""

import re
import unicodedata
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import ExtractionMode, excerpt, extraction_mode, last_line
from apps.gym.verifiers.answering import AnswerVerifier
from apps.gym.verifiers.text.us_states import abbreviate_states

SOFT = 0.98
"""What a number that is nearly the expected one gives, and how near it must be: (1 − relative error)² above this."""

_ANSWER = re.compile(r"answer\s{0,20}[:：]\s{0,20}(\S.*)", re.IGNORECASE)
_BOX = re.compile(r"(?P<box>\\boxed\{)|[{}]")
_WRAPPERS = r"\\(?:boxed|text|textbf|textit|texttt|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|emph|url)\{"
_BRACES = re.compile(rf"(?P<command>{_WRAPPERS})|[{{}}]")
_COMMA_IN_NUMBER = re.compile(r"(\d),(\d+)")
_UNITS = re.compile(r"\^\{?\\circ\}?|\\circ|cm|mm|km|kg|m")
_SIGNS = str.maketrans({"°": "^\\circ", "√": "\\sqrt", "π": "\\pi", "﹣": "-", "﹢": "+"})


class StringMatch(AnswerVerifier, frozen=True, kw_only=True, tag="string_match"):
    """1.0 for an answer that is the expected one, 0.98 for a number that is nearly it, else 0.0.

    Where case matters, the texts must be equal. Else both are plain text (NFKC, no outer quotes, lower case, no `.!?`
    at the end) and equal as texts, as numbers, without commas in numbers, without LaTeX around, without commas, "and"
    and "or" between words, or with US states abbreviated. Then numbers are compared without signs of money, percent and
    units: 0.98 when (1 − relative error)² is above 0.98. Last, texts are equal less their units: 1.0.

    The answer follows the last "Answer:", else it is the last box.

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
            value = float(answer.strip() == expected)
        else:
            value = compare(_plain(answer), _plain(expected))
        verb = {1.0: "is", SOFT: "is nearly"}.get(value, "is not")
        told = "no answer was given" if answer is None else f"answer {excerpt(answer)} {verb} {excerpt(expected)}"
        return Reward(
            value=value,
            components={"string_match": value},
            explanation=told,
            details={"extracted_answer": answer, "expected_answer": expected},
        )

    def _answer(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        if self.extract == "pattern":
            return self.find_answer(row, response)
        text = assistant_text(response.get("output") or []).strip()
        return _extract(text, self.extract or extraction_mode(row) or "final_answer")


def _extract(text: str, mode: ExtractionMode) -> str | None:
    match mode:
        case "boxed":
            return _last_box(text)
        case "last_line":
            return last_line(text)
        case "full_response":
            return text or None
        case "final_answer":
            found = _ANSWER.findall(text)
            return found[-1].strip().rstrip(".").strip() if found else _last_box(text)


def _last_box(text: str) -> str | None:
    """What stands in the box that opens last and is closed, less `\\text{…}` around it."""
    found: tuple[int, int] | None = None
    opened: list[int | None] = []
    for token in _BOX.finditer(text):
        if token["box"]:
            opened.append(token.end())
        elif token[0] == "{":
            opened.append(None)
        elif opened and (start := opened.pop()) is not None and (found is None or start > found[0]):
            found = (start, token.start())
    if found is None:
        return None
    inner = text[found[0] : found[1]].strip()
    for _ in range(5):
        # No pattern: one that drops the white space on both sides takes the cube of its length.
        if not (inner.startswith("\\text{") and inner.endswith("}")):
            break
        inner = inner[len("\\text{") : -1].strip()
    return inner.strip()


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def compare(answer: str, expected: str) -> float:
    """Both as `_plain` gives them."""
    if answer == expected:
        return 1.0
    for rule in (_as_number, _without_number_commas, _without_latex, _as_list, _with_states):
        if rule(answer) == rule(expected):
            return 1.0
    if _nearness(_bare_number(answer), _bare_number(expected)) > SOFT:
        return SOFT
    ours, theirs = _without_units(answer), _without_units(expected)
    if ours == theirs:
        return 1.0
    return SOFT if _nearness(_bare_number(ours), _bare_number(theirs)) > SOFT else 0.0


def _as_number(text: str) -> str | float:
    number = _float(text.replace("\\%", "").replace("\\$", "").replace("$", ""))
    return text if number is None else number


def _without_number_commas(text: str) -> str:
    return _COMMA_IN_NUMBER.sub(r"\1\2", text).replace("\\%", "%")


def _without_latex(text: str) -> str:
    """Without commands around a text, with what they hold, and without signs of mathematics around it."""
    kept, at = [], 0
    opened: list[bool] = []
    for token in _BRACES.finditer(text):
        drop = token["command"] is not None
        if token[0] == "}":
            drop = opened.pop() if opened else False
        else:
            opened.append(drop)
        if drop:
            kept.append(text[at : token.start()])
            at = token.end()
    bare = "".join([*kept, text[at:]])
    for sign in ("\\(", "\\)", "\\[", "\\]", "$"):
        bare = bare.replace(sign, "")
    return " ".join(bare.split())


def _as_list(text: str) -> str:
    """Parts by single spaces; a text that would lose more than a tenth of itself is no list."""
    spaced = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(spaced) < 0.9 * len(text) else " ".join(spaced.split())


def _with_states(text: str) -> str:
    return _as_list(abbreviate_states(text)).lower()


def _without_units(text: str) -> str:
    return _UNITS.sub("", _without_latex(text).translate(_SIGNS)).strip()


def _bare_number(text: str) -> float | None:
    for sign in ("\\%", "\\$", "$", "£", "€", "%", ","):
        text = text.replace(sign, "")
    return _float(_UNITS.sub("", text.translate(_SIGNS)))


def _float(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


def _nearness(answer: float | None, expected: float | None) -> float:
    if answer is None or expected is None:
        return 0.0
    error = abs(answer - expected) / max(abs(expected), 1e-9)
    return max(0.0, 1.0 - error) ** 2
