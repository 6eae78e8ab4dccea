"""Find the answer in a model's reply."""

import re
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import shorten
from apps.gym.traces.items import TaskRow

ExtractionMode = Literal["boxed", "last_line", "final_answer", "full_response"]
EXTRACTION_MODES: tuple[ExtractionMode, ...] = get_args(ExtractionMode)

_BRACES = re.compile(r"(?P<box>\\boxed\s*\{)|\\.|[{}]", re.DOTALL)
# Possessive, so that long runs of white space take linear time.
_FINAL_ANSWER = re.compile(r"final answer\**(?:\s++is)?(?:\s*+[:：]|(?<=is))\s*+(\S.*)", re.IGNORECASE)
_LABEL = re.compile(
    r"[*_#]{0,3}\s?(?:so |thus |therefore,? )?(?:the )?(?:final |correct )?answer"
    r"(?:\*{0,2} ?[:：]\*{0,2}|\s++is\b ?[:：]?)\s*+(?=\S)",
    re.IGNORECASE,
)
_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{…}` with balanced braces; None without one.

    A box inside a box is part of the outer one. Escaped braces do not count. Takes linear time.
    """
    spans = list(find_boxes(text, _BRACES))
    return text[slice(*spans[-1])].strip() if spans else None


def find_boxes(text: str, tokens: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of each box, in the order in which they close.

    `tokens` matches the opening of a box as its group `box`, and other braces.
    """
    opened: list[int | None] = []
    for token in tokens.finditer(text):
        if token["box"]:
            opened.append(token.end())
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened and (start := opened.pop()) is not None:
            yield start, token.start()


def last_line(text: str) -> str | None:
    """Return the last line that is not blank, or None for an empty text."""
    stripped = text.rstrip()
    return stripped.rpartition("\n")[2].strip() or None


def final_answer(text: str) -> str | None:
    """Return the text after the last "final answer:" on its line, else the last box."""
    matches = _FINAL_ANSWER.findall(text)
    return matches[-1].strip().strip("*").strip() if matches else last_boxed(text)


def extract_answer(text: str, mode: ExtractionMode | None = None) -> str | None:
    """Return the answer by `mode`; without a mode the last box, else the last line without a label ("Answer:").

    None if there is no answer.
    """
    found = _EXTRACTORS[mode or "boxed"](text)
    if found is None and mode is None:
        found = _without_label(last_line(text))
    return None if found is None else (_without_markup(found) or None)


_EXTRACTORS: dict[ExtractionMode, Callable[[str], str | None]] = {
    "boxed": last_boxed,
    "last_line": last_line,
    "final_answer": final_answer,
    "full_response": str.strip,
}


def stands_in_box(text: str, mode: str | None) -> bool:
    """Return True if the answer that `extract_answer` finds is in a box."""
    if mode == "final_answer" and _FINAL_ANSWER.search(text):
        return False
    return mode == "boxed" or (mode in (None, "final_answer") and last_boxed(text) is not None)


def excerpt(text: str) -> str:
    """Return the text, shortened for use in a sentence."""
    return shorten(text, 200)


def _without_label(line: str | None) -> str | None:
    match = _LABEL.match(line) if line else None
    return line[match.end() :].strip("* ") if line and match else line


def _without_markup(answer: str) -> str:
    r"""Return the answer without surrounding `$…$` or `\(…\)` and without `\text{…}`, which are common in boxes."""
    answer = _WRAPPER.sub(r"\1", answer).strip()
    if (answer[:2], answer[-2:]) in ((r"\(", r"\)"), (r"\[", r"\]")) and len(answer) >= 4:
        answer = answer[2:-2].strip()
    while len(answer) > 1 and answer[0] == answer[-1] == "$":
        answer = answer[1:-1].strip()
    return answer


def expected_answer(row: TaskRow, field: str = "expected_answer") -> str:
    """Return the row's field as text. Raises VerifierError if it is missing, or neither text nor a number."""
    expected = row.get(field)
    if expected is None:
        raise VerifierError(f"the task row has no `{field}`, which this verifier needs").permanent()
    return answer_text(expected, f"the task row's `{field}`")


def answer_text(expected: object, where: str) -> str:
    """Return a number or text as text. Raises VerifierError for other types and empty values."""
    if isinstance(expected, bool) or not isinstance(expected, str | int | float):
        raise VerifierError(f"{where} must be text or a number").permanent()
    text = str(expected).strip()
    if not text:
        raise VerifierError(f"{where} is empty").permanent()
    return text


def extraction_mode(row: TaskRow) -> ExtractionMode | None:
    """Return the row's `extraction_mode`, or None without one. Raises VerifierError for an unknown one."""
    wanted: ExtractionMode | None = row.get("extraction_mode")
    if wanted is not None and wanted not in EXTRACTION_MODES:
        names = ", ".join(EXTRACTION_MODES)
        raise VerifierError(f"the task row's `extraction_mode` is {wanted!r}, not one of {names}").permanent()
    return wanted
