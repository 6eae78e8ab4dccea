"""Exact match and string match: the answer equals the expected one after normalisation."""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.answer_texts import ExtractionMode, find_boxes, last_line, plain_characters
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.protocol import AnswerVerifier, Extraction, answer_reward

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
_ESCAPED = re.compile(r"\\([%$&#_{}])")
_TRAILING = ".!?,;:。！？"
_COUNTED = re.compile(r"[\d)]$|(?:^|\W)\w$")
"""The end of a number, a bracket or a name before a factorial."""
_NAMED = re.compile(r"[a-zA-Z] ?= ?(?=\S)")
_SUBSCRIPTS = dict(zip(range(0x2080, 0x208A), "0123456789", strict=True))


def normalise(text: str, *, case_sensitive: bool = False, peel: bool = True) -> str:
    """Return a text in plain characters, with single spaces, in lower case unless `case_sensitive`.

    With `peel`, without outer quotes and final punctuation.

    A text of only punctuation is unchanged, so that "?" can be an answer.
    """
    text = plain_characters(text)
    text = " ".join((_ESCAPED.sub(r"\1", text) if "\\" in text else text).split())
    for _ in range(4 if peel else 0):
        before, text = text, _peel(text) or text
        if text == before:
            break
    return text if case_sensitive else unicodedata.normalize("NFKC", text.casefold())


def _other_forms(answer: str) -> Iterator[str]:
    """Yield the right side of x = 5, and H2O for H₂O."""
    if named := _NAMED.match(answer):
        yield answer[named.end() :]
    if not answer.isascii() and (plain := answer.translate(_SUBSCRIPTS)) != answer:
        yield plain


def _peel(text: str) -> str:
    bare = text.rstrip(_TRAILING)
    if text.startswith("!", len(bare)) and _COUNTED.search(bare[-2:]):
        bare = text.rstrip(_TRAILING.replace("!", ""))
    text = bare.strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text


class TextVerifier(AnswerVerifier, frozen=True, kw_only=True):
    case_sensitive: (
        Annotated[
            bool,
            Meta(title="Case-sensitive", description="Default: `case_sensitive` of the row"),
        ]
        | None
    ) = None

    def is_strict(self, row: TaskRow) -> bool:
        """Return True if case counts."""
        return row.get("case_sensitive") is True if self.case_sensitive is None else self.case_sensitive


class ExactMatch(TextVerifier, frozen=True, kw_only=True, tag="exact_match"):
    """1.0 if the answer equals the expected answer, otherwise 0.0.

    Both are normalised first: Unicode NFKC, plain quotes and dashes, white space as single spaces, no outer quotes, no
    final punctuation, lower case. x² is x^2, and 3½ is 3 1/2. In 5! the mark is no punctuation. The answer x = 5 is
    also 5, and H₂O is H_2O or H2O.

    Range: 0.0 or 1.0. Component: `exact_match`.
    """

    title: ClassVar[str] = "Exact match"
    component = "exact_match"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = self.find_expected(row)
        answer = self.find_answer(row, response)
        reward = partial(answer_reward, self.component, answer=answer, expected=expected)
        if answer is None:
            mode = self.extract or extraction_mode(row)
            wanted = " in a \\boxed{…}" if mode == "boxed" else ""
            return reward(0.0, f"no answer{wanted}; expected {excerpt(expected)}")
        strict = self.is_strict(row)
        wanted = normalise(expected, case_sensitive=strict)
        equal = normalise(answer, case_sensitive=strict) == wanted
        equal = equal or any(normalise(one, case_sensitive=strict) == wanted for one in _other_forms(answer))
        verb = "equals" if equal else "is not"
        return reward(float(equal), f"answer {excerpt(answer)} {verb} expected {excerpt(expected)}")


_NAMES = """
dc district of columbia, nh new hampshire, nj new jersey, nm new mexico, ny new york, nc north carolina,
nd north dakota, ri rhode island, sc south carolina, sd south dakota, wv west virginia, al alabama,
ak alaska, az arizona, ar arkansas,
ca california, co colorado, ct connecticut, de delaware, fl florida, ga georgia, hi hawaii, id idaho, il illinois,
in indiana, ia iowa, ks kansas, ky kentucky, la louisiana, me maine, md maryland, ma massachusetts, mi michigan,
mn minnesota, ms mississippi, mo missouri, mt montana, ne nebraska, nv nevada, oh ohio, ok oklahoma, or oregon,
pa pennsylvania, tn tennessee, tx texas, ut utah, vt vermont, va virginia, wa washington, wi wisconsin, wy wyoming
"""
# Two-word names first: West Virginia contains Virginia.
_ABBREVIATIONS = [entry.split(maxsplit=1) for entry in _NAMES.split(",")]


def abbreviate_states(text: str) -> str:
    """Return a lower-case text with each state name replaced by its upper-case abbreviation."""
    for abbreviation, name in _ABBREVIATIONS:
        text = text.replace(name.strip(), abbreviation.upper())
    return text


SOFT = 0.98
"""The reward of a number that is close to the expected one, and the threshold: (1 − relative error)² must be above it.
"""

_ANSWER = re.compile(r"answer[*_]{0,3}\s{0,20}[:：][\s*_]{0,20}(\S.*)", re.IGNORECASE)
_BOX = re.compile(r"(?P<box>\\boxed\{)|[{}]")
_WRAPPERS = r"\\(?:boxed|text|textbf|textit|texttt|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|emph|url)\{"
_BRACES = re.compile(rf"(?P<command>{_WRAPPERS})|[{{}}]")
_COMMA_IN_NUMBER = re.compile(r"(\d),(\d+)")
_UNITS = re.compile(r"\^\{?\\circ\}?|\\circ|cm|mm|km|kg|m")
_SIGNS = str.maketrans({"°": "^\\circ", "√": "\\sqrt", "π": "\\pi", "﹣": "-", "﹢": "+"})


class StringMatch(TextVerifier, frozen=True, kw_only=True, tag="string_match"):
    """1.0 for the expected answer, 0.98 for a nearly equal number, otherwise 0.0.

    If `case_sensitive` is on, the texts must be equal. Otherwise both are normalised (NFKC, no outer quotes, lower
    case, no final .!?). The reward is 1.0 if they agree in one of these forms: as text; as number; without commas in
    numbers; without outer LaTeX; without commas, "and" and "or" between words; with US states abbreviated. Next,
    numbers are compared without currency signs, percent signs and units: 0.98 if (1 − relative error)² is above 0.98.
    Finally, both are compared without units and LaTeX: 1.0 if they are equal, 0.98 for nearly equal numbers.

    The answer is the text after the last "Answer:", otherwise the last box.

    Range: 0.0, 0.98 or 1.0. Component: `string_match`.
    """

    title: ClassVar[str] = "Graded string match"
    component = "string_match"
    extract: (
        Annotated[
            Extraction,
            Meta(
                title="Answer location",
                description=(
                    'Default: `extraction_mode` of the row, otherwise the text after the last "Answer:", otherwise the '
                    "last box"
                ),
            ),
        ]
        | None
    ) = None

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = self.find_expected(row)
        answer = self._answer(row, response)
        if answer is None:
            value = 0.0
        elif self.is_strict(row):
            value = float(answer.strip() == expected)
        else:
            value = compare(_plain(answer), _plain(expected))
        verb = {1.0: "is", SOFT: "is nearly"}.get(value, "is not")
        told = "no answer" if answer is None else f"answer {excerpt(answer)} {verb} {excerpt(expected)}"
        return answer_reward(self.component, value, told, answer=answer, expected=expected)

    def _answer(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        if self.extract == "pattern":
            return self.find_answer(row, response)
        text = assistant_text(response.get("output") or []).strip()
        return _extract(text, self.extract or extraction_mode(row) or "final_answer")


def _extract(text: str, mode: ExtractionMode) -> str | None:
    if mode == "last_line":
        return last_line(text)
    if mode == "full_response":
        return text or None
    found = _ANSWER.findall(text) if mode == "final_answer" else []
    return found[-1].strip().rstrip(".").strip().strip("*").rstrip(".") if found else _last_box(text)


def _last_box(text: str) -> str | None:
    """Return the content of the closed box that begins last, without `\\text{…}` around it."""
    start, end = max(find_boxes(text, _BOX), default=(0, None))
    if end is None:
        return None
    inner = text[start:end].strip()
    for _ in range(5):
        # Not a pattern: one that strips white space on both sides would take cubic time.
        if not (inner.startswith("\\text{") and inner.endswith("}")):
            break
        inner = inner[len("\\text{") : -1].strip()
    return inner.strip()


def _plain(text: str) -> str:
    text = plain_characters(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def compare(answer: str, expected: str) -> float:
    """Return the score of an answer. Both texts must be normalised by `_plain`."""
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
    """Return a text without surrounding commands, without braces, and without surrounding math delimiters."""
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
    """Return the parts separated by single spaces. A text that would lose more than a tenth is not a list."""
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
