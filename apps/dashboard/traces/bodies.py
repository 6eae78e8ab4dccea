"""Texts of a trace: what form they have, how much of one is shown at first, and where the whole is."""

import json
import re
from dataclasses import dataclass, replace

FOLD_CHARACTERS = 4_000
FOLD_LINES = 60
CUT_CHARACTERS = 32_000
"""A page shows so much of one text; the rest is a click away."""
LARGEST_IN_PAGE = 1_000_000
"""A longer text is offered as a file only."""
_PREVIEW_CHARACTERS = 600
_PREVIEW_LINES = 8
_DIFF = re.compile(r"^(diff --git |--- [^\n]+\n\+\+\+ |@@ -\d+(,\d+)? \+\d+(,\d+)? @@)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Body:
    """A whole text, of which `limit` characters are shown at first.

    `form` is text, markdown, json, ansi or diff. The event `seq` has it as its `part`, which is empty for a text that
    is stored nowhere by itself.
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
        """More than a glance."""
        return len(self.text) > _PREVIEW_CHARACTERS or self.lines > _PREVIEW_LINES

    @property
    def is_folded(self) -> bool:
        long = self.is_cut or len(self.text) > FOLD_CHARACTERS or self.lines > FOLD_LINES
        return long or (self.is_json and self.laid_out.count("\n") >= FOLD_LINES)

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
    def laid_out(self) -> str:
        """For a page without scripts: JSON on lines of its own, as every value is written."""
        return lay_out(self.text) if self.is_json else self.text

    @property
    def preview(self) -> str:
        """The first lines, for the summary of a folded text."""
        start = self.text[:_PREVIEW_CHARACTERS]
        return "\n".join((lay_out(start) if self.is_json else start).split("\n")[:_PREVIEW_LINES])

    def at(self, seq: int, part: str) -> "Body":
        return replace(self, seq=seq, part=part)


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def json_body(value: object) -> Body:
    return Body(pretty(value), "json")


def read_output(text: str) -> Body:
    """What a tool or a program wrote, as it stands: a JSON object or array is laid out where it is shown, because a
    number that is read and written again may be another one."""
    if isinstance(parse_json(text), dict | list):
        return Body(text, "json")
    if "\x1b[" in text:
        return Body(text, "ansi")
    return Body(text, "diff" if _DIFF.search(text, 0, 20_000) else "text")


_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)""")
_LARGEST_LAID_OUT = 200_000
_DEEPEST = 40


def lay_out(text: str) -> str:
    """JSON text, which may end early, indented: numbers and names stay as they are written, and letters that were
    written as numbers are letters."""
    if len(text) > _LARGEST_LAID_OUT:
        return text
    parts: list[str] = []
    depth, last, end = 0, "", 0
    while found := _TOKEN.match(text, end):
        part, end = found[1], found.end()
        closes = part in ("}", "]")
        depth -= closes and depth > 0
        if parts and last + part not in ("{}", "[]") and (closes or last in ("{", "[", ",")):
            parts.append("\n" + "  " * min(depth, _DEEPEST))
        parts.append(": " if part == ":" else _plain(part))
        depth += part in ("{", "[")
        last = part
    return "".join(parts) + text[end:].lstrip()


def _plain(part: str) -> str:
    if not part.startswith('"') or "\\u" not in part:
        return part
    try:
        plain = json.dumps(json.loads(part), ensure_ascii=False)
        plain.encode()
    except ValueError:  # half a letter stays as it is written
        return part
    return plain


def parse_json(text: str) -> object:
    """The value of JSON text, None where it is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
