"""Texts of a trace: format, visible part, and URL of the full text."""

import json
import re
from dataclasses import dataclass, replace

from apps.gym.traces.items import refuse_constant

FOLD_CHARACTERS = 4_000
FOLD_LINES = 60
CUT_CHARACTERS = 32_000
"""Maximum characters of a text on the page; the full text is linked."""
LARGEST_IN_PAGE = 1_000_000
"""Longer texts are only available as a file."""
_PREVIEW_CHARACTERS = 600
_PREVIEW_LINES = 8
_DIFF = re.compile(r"^(diff --git |--- [^\n]+\n\+\+\+ |@@ -\d+(,\d+)? \+\d+(,\d+)? @@)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Body:
    """A text, of which the first `limit` characters are shown initially.

    `form` is text, markdown, json, ansi or diff. `seq` and `part` locate the text in the trace; `part` is empty if the
    text is not stored separately.
    """

    text: str
    form: str = "text"
    seq: int = 0
    part: str = ""
    limit: int = CUT_CHARACTERS

    @property
    def is_json(self) -> bool:
        return self.form == "json"

    @property
    def size(self) -> int:
        return len(self.text.encode(errors="replace"))

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1

    @property
    def is_cut(self) -> bool:
        return bool(self.part) and len(self.text) > self.limit

    @property
    def is_long(self) -> bool:
        """Return True if the text is folded initially."""
        return len(self.text) > _PREVIEW_CHARACTERS or self.lines > _PREVIEW_LINES

    @property
    def is_folded(self) -> bool:
        long = self.is_cut or len(self.text) > FOLD_CHARACTERS or self.lines > FOLD_LINES
        return long or (self.is_json and self.indented.count("\n") >= FOLD_LINES)

    @property
    def fits_in_page(self) -> bool:
        return len(self.text) <= LARGEST_IN_PAGE

    @property
    def shown(self) -> str:
        return self.text[: self.limit] if self.is_cut else self.text

    @property
    def shown_size(self) -> int:
        return len(self.shown.encode(errors="replace"))

    @property
    def indented(self) -> str:
        """Return the text for display without JavaScript. JSON is indented, its values are unchanged."""
        return indent_text(self.text) if self.is_json else self.text

    @property
    def preview(self) -> str:
        """Return the first lines, for the summary of a folded text."""
        start = self.text[:_PREVIEW_CHARACTERS]
        return "\n".join((indent_text(start) if self.is_json else start).split("\n")[:_PREVIEW_LINES])

    def at(self, seq: int, part: str) -> "Body":
        return replace(self, seq=seq, part=part)


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def json_body(value: object) -> Body:
    return Body(pretty(value), "json")


def read_output(text: str) -> Body:
    """Return the body of a tool's or program's output.

    JSON is recognized but not parsed and written again, which could change its numbers.
    """
    if isinstance(parse_json(text), dict | list):
        return Body(text, "json")
    if "\x1b[" in text:
        return Body(text, "ansi")
    return Body(text, "diff" if _DIFF.search(text, 0, 20_000) else "text")


_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)""")
_MAX_INDENTED = 200_000
_MAX_DEPTH = 40


def indent_text(text: str) -> str:
    """Indent JSON text, which may be truncated. Numbers and names are unchanged; escaped letters are decoded."""
    if len(text) > _MAX_INDENTED:
        return text
    parts: list[str] = []
    depth, last, end = 0, "", 0
    while found := _TOKEN.match(text, end):
        part, end = found[1], found.end()
        closes = part in ("}", "]")
        depth -= closes and depth > 0
        if parts and last + part not in ("{}", "[]") and (closes or last in ("{", "[", ",")):
            parts.append("\n" + "  " * min(depth, _MAX_DEPTH))
        parts.append(": " if part == ":" else _decode_letters(part))
        depth += part in ("{", "[")
        last = part
    return "".join(parts) + text[end:].lstrip()


def _decode_letters(part: str) -> str:
    if not part.startswith('"') or "\\u" not in part:
        return part
    try:
        plain = json.dumps(json.loads(part), ensure_ascii=False)
        plain.encode()
    except ValueError:  # lone surrogates stay escaped
        return part
    return plain


def parse_json(text: str) -> object:
    """Return the parsed JSON, or None if it is invalid."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
