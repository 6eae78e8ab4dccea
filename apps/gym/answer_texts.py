"""Find the answer in a text, and compare answers by value."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, get_args

ExtractionMode = Literal["boxed", "last_line", "final_answer", "full_response"]
EXTRACTION_MODES: tuple[ExtractionMode, ...] = get_args(ExtractionMode)

_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# Possessive, so that long runs of white space take linear time.
_FINAL_ANSWER = re.compile(r"final answer\**(?:\s++is)?(?:\s*+[:：]|(?<=is))\s*+(\S.*)", re.IGNORECASE)
_LABEL = re.compile(
    r"[*_#]{0,3}\s?(?:(?:so|thus|hence|therefore),? )?(?:the |my )?(?:final |correct )?answer"
    r"(?:\*{0,2} ?[:：]\*{0,2}|\s++is\b ?[:：]?)\s*+(?=\S)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```[\w+-]*\n(?P<content>.*)\n```", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mathbf|mbox|boldsymbol|underline)\s*\{([^{}]*)\}")
_EMPHASIS = re.compile(r"(\*{1,3}|__(?![a-z_]+__$)|`{1,3})(?P<inner>(?:[^*_`]|_(?!_$))+)\1[.!]?")
"""Bold, italics or code. `__init__` is a name in programs."""
_HEADING = re.compile(r"####\s+(?=\S)")
"""The mark of the answer in GSM8K."""
_STATED = re.compile(rf"^[ \t>]*(?:{_HEADING.pattern}|(?i:{_LABEL.pattern}))(.+)", re.MULTILINE)
_CORRECTED = re.compile(
    r"\b(?:wait|actually|but|however|instead|correct(?:ion|ed)|mistake|recheck|let me|let's|no,|oops|part|step)\b", re.I
)
_SENTENCE_END = re.compile(r"(?:(?<=[\d)\]}$%*])|(?<=[a-z]{4}))[.!]\s+(?=[A-Z(])")
"""Not after an abbreviation: St. Louis, U.S. Army."""
_BEGUN = re.compile(
    r"\\\[$|\$\$$|\\begin|```|[-*•]\s|\d+[.)]\s"
    r"|(?:as|based|below|by|computed|calculated|found|given|in|obtained|shown|the following|we)\b",
    re.IGNORECASE,
)
"""The beginning of a formula, a block, a list or an explanation after "Answer:"."""
_WORD = re.compile(r"(?<![\\a-zA-Z])[^\W\d_]{2,}")
_MOST_WORDS = 3
_CLOSING = re.compile(r"(?=(?:\S+ ){2})[^\d$\\=]{1,200}")
"""A sentence without numbers and formulas, for example after a display formula."""
_BARE_BOX = re.compile(r"\\boxed\s*+([\w.+-]++)")
_DISPLAYS = [(r"\[", r"\]"), ("$$", "$$")]
_DISPLAYS += [
    (rf"\begin{{{name}{star}}}", rf"\end{{{name}{star}}}")
    for name in ("equation", "align", "gather", "multline", "displaymath")
    for star in ("", "*")
]
_COURTESY = re.compile(
    r"I hope|Hope (?:this|that|it)|Let me know|Feel free|If you have|Please let|Is there anything", re.I
)
_ROWS = re.compile(r"\\(?:begin|end)\{(?:aligned|gathered|split)\}")
_WRITTEN_SMALL = re.compile("([⁰¹²³⁴-⁹⁺⁻⁼⁽⁾ⁿⁱ]+)|([₀-₎]+)|([¼-¾⅐-⅞↉])")
_ASCII = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "‑": "-",
        "⁄": "/",
        "º": "°",
        "′": "'",
        "″": "''",
        **dict.fromkeys("“”„‟", '"'),
        **dict.fromkeys("‘’‚‛", "'"),
    }
)


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{…}` or `\\fbox{…}` with balanced braces; None without one.

    A box inside a box is part of the outer one. Escaped braces do not count. Without braces, `\\boxed 5` counts. Takes
    linear time.
    """
    if "box" not in text:
        return None
    if spans := list(find_boxes(text, _BRACES)):
        # An empty box after the answer says nothing.
        found = [inner for span in spans if (inner := text[slice(*span)].strip())]
        last = found[-1] if found else ""
        return last_boxed(last) if last.endswith("}") and _BOX.match(last) else last
    bare = _BARE_BOX.findall(text)
    return bare[-1].rstrip(".") if bare else None


def holds_box(text: str) -> bool:
    """Return True if a box begins in the text, also if it is cut off."""
    return "box" in text and _BOX.search(text) is not None


def last_tagged(text: str) -> str | None:
    """Return the content of the last `<answer>…</answer>`; None without one."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end].strip() or None if start >= 0 else None


def last_stated(text: str) -> str | None:
    """Return the sentence after the last "Answer:", "The answer is" or `####` at the beginning of a line.

    None without one, if it has more than three words, which explain, or if the text after it seems to correct it.
    """
    if not any(mark in text for mark in ("nswer", "NSWER", "####")):
        return None  # Fast path.
    stated = next(reversed(list(_STATED.finditer(text))), None)
    if stated is None or _CORRECTED.search(text, stated.start(1)):
        return None
    answer = _SENTENCE_END.split(stated[1], maxsplit=1)[0].strip().strip("*").strip()
    is_answer = len(_WORD.findall(answer)) <= _MOST_WORDS and not _BEGUN.match(answer)
    return answer if answer and is_answer else None


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


def last_display(text: str) -> str | None:
    """Return the display formula at the end of a text, of several rows the last; None without one.

    A sentence without numbers may follow on a line of its own.
    """
    if "\\" not in text and "$$" not in text:
        return None  # Fast path.
    text = text.rstrip(" \t\r\n.")
    before, _, line = text.rpartition("\n")
    if before and _CLOSING.fullmatch(line.strip()):
        text = before.rstrip(" \t\r\n.")
    for opened, closed in _DISPLAYS:
        if text.endswith(closed) and (start := text.rfind(opened, 0, -len(closed))) >= 0:
            content = text[start + len(opened) : -len(closed)]
            if opened.startswith(r"\begin") or _ROWS.search(content):
                row = _ROWS.sub("", content).strip().removesuffix(r"\\").rpartition(r"\\")[2]
                content = row.replace("&", "").strip().removeprefix("=")
            return " ".join(content.split()) or None
    return None


def last_line(text: str) -> str | None:
    """Return the display formula at the end, otherwise the last line that is not blank; None for an empty text.

    Lines of courtesy ("I hope this helps.") do not count, nor do the fence of a code block and a rule ("---").
    """
    text = text.rstrip()
    before, _, line = text.rpartition("\n")
    if before and len(line) >= 3 and not line.strip("-*_= "):
        text = before.rstrip()
        before, _, line = text.rpartition("\n")
    if before and _COURTESY.match(line.lstrip()):
        text = before.rstrip()
    if text.endswith("```"):
        text = text[:-3].rstrip()
    return last_display(text) or text.rpartition("\n")[2].strip() or None


def final_answer(text: str) -> str | None:
    """Return the text after the last "final answer:" on its line, else the last box."""
    matches = _FINAL_ANSWER.findall(text)
    return matches[-1].strip().strip("*").strip() if matches else last_boxed(text)


def extract_answer(text: str, mode: ExtractionMode | None = None) -> str | None:
    """Return the answer by `mode`; without a mode the last box, `<answer>…</answer>`, "Answer: …" or the last line.

    None if there is no answer.
    """
    found = _EXTRACTORS[mode or "boxed"](text)
    # A reply that was cut off within its box has no answer.
    if found is None and mode is None and not holds_box(text):
        found = find_line(text)
    return None if found is None else (_without_markup(found) or None)


def find_line(text: str) -> str | None:
    """Return the answer of a reply without a box, with its markup: tagged, stated, or the last line."""
    return last_tagged(text) or last_stated(text) or _without_label(last_line(text))


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
    if not line:
        return line
    line = line[heading.end() :] if (heading := _HEADING.match(line)) else line
    match = _LABEL.match(line)
    return line[match.end() :].strip("* ") if match else line


def _without_markup(answer: str) -> str:
    r"""Return the answer without surrounding `$…$` or `\(…\)` and without `\text{…}`, which are common in boxes."""
    answer = without_delimiters(_WRAPPER.sub(r"\1", answer) if "\\" in answer else answer)
    bold = _EMPHASIS.fullmatch(answer) if answer[:1] in ("*", "_", "`") else None
    return bold["inner"].strip() if bold else answer


def without_delimiters(formula: str) -> str:
    r"""Return a formula without surrounding `$…$`, `$$…$$`, `\(…\)` or `\[…\]`."""
    formula = formula.strip()
    if (formula[:2], formula[-2:]) in ((r"\(", r"\)"), (r"\[", r"\]")) and len(formula) >= 4:
        formula = formula[2:-2].strip()
    while len(formula) > 1 and formula[0] == formula[-1] == "$":
        formula = formula[1:-1].strip()
    return formula


def plain_characters(text: str) -> str:
    """Return a text in NFKC with plain quotes and dashes, in which x² is x^2, H₂O is H_2O, and 3½ is 3 1/2.

    NFKC alone makes 102 of 10².
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _WRITTEN_SMALL.sub(_written_large, text).translate(_ASCII)).translate(_ASCII)


def _written_large(match: re.Match[str]) -> str:
    digits = unicodedata.normalize("NFKC", match[0]).translate(_ASCII)
    if match[3]:
        return " " * match.string[match.start() - 1 : match.start()].isdigit() + digits
    braced = digits if len(digits) == 1 else f"{{{digits}}}"
    return ("^" if match[1] else "_") + braced


MAX_NORMALIZED = 64 * 1024
"""Maximum characters to normalise.

The rest is compared as is, because splitting megabytes into words takes many times their memory.
"""


def normalize_answer(text: str) -> str:
    """Return the text without differences of case, white space, character width and a final full stop."""
    head, rest = text[:MAX_NORMALIZED], text[MAX_NORMALIZED:]
    return " ".join(plain_characters(head).casefold().split()).removesuffix(".") + rest


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
