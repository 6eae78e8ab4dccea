"""Find the answer in a text, and compare answers by value."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, get_args

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
_FENCE = re.compile(r"```[\w+-]*\n(?P<content>.*)\n```", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{…}` with balanced braces; None without one.

    A box inside a box is part of the outer one. Escaped braces do not count. Takes linear time.
    """
    spans = list(find_boxes(text, _BRACES)) if "\\boxed" in text else []
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


MAX_NORMALIZED = 64 * 1024
"""Maximum characters to normalise.

The rest is compared as is, because splitting megabytes into words takes many times their memory.
"""


def normalize_answer(text: str) -> str:
    """Return the text without differences of case, white space, character width and a final full stop."""
    head, rest = text[:MAX_NORMALIZED], text[MAX_NORMALIZED:]
    return " ".join(unicodedata.normalize("NFKC", head).casefold().split()).removesuffix(".") + rest


def is_same_text(one: str, other: str) -> bool:
    """Return True if two texts are equal apart from case and white space, or the same JSON, also in a code fence."""
    if normalize_answer(one) == normalize_answer(other):
        return True
    values = [read_json_answer(text) for text in (one, other)]
    return values[0] is not None and values[0] == values[1]


def is_answer_of(answer: str, text: str) -> bool:
    """Return True if a verifier may find the answer in the text, or the other way round.

    Both may be whole replies with the same box or labelled answer. Equal last lines alone mean nothing.
    """
    meant, short = _marked(answer), normalize_answer(answer)
    if not meant and "\\" not in text and len(text) <= MAX_NORMALIZED and short not in normalize_answer(text):
        return False  # Fast path: without markup, verifiers find only parts of the text.
    read = {normalize_answer(one) for mode in (None, *EXTRACTION_MODES) if (one := extract_answer(text, mode))}
    return short in read or normalize_answer(text) in meant or not meant.isdisjoint(_marked(text))


def _marked(text: str) -> set[str]:
    return {normalize_answer(found) for find in (last_boxed, _labelled) if (found := find(text))}


def _labelled(text: str) -> str | None:
    matches = _FINAL_ANSWER.findall(text)
    return matches[-1].strip("* ") if matches else None


def read_json_answer(text: str) -> str | None:
    """Return JSON of an object or a list with sorted keys, None for other texts. It may be in a code fence."""
    fenced = _FENCE.fullmatch(text.strip())
    bare = fenced["content"] if fenced else text.strip()
    if bare[:1] not in ("{", "["):
        return None
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(bare), sort_keys=True)
    return None


def holds_answer(text: str, answer: str) -> bool:
    """Return True if the text contains the answer, not as a part of a longer word. Both are normalised."""
    start = text.find(answer)
    while start >= 0:
        around = text[start - 1 : start] + text[start + len(answer) : start + len(answer) + 1]
        if not any(one.isalnum() or one == "_" for one in around):
            return True
        start = text.find(answer, start + 1)
    return False
