"""Filters as a tree and as text. All terms must match; a term matches if one of its values does.

filter = term*        term = ["-"] (key ":" value ("," value)* | word | quoted)
value  = "*" | [">" | ">=" | "<" | "<="] number | [">"] number ".." ["<"] number | word | quoted
"""

import contextlib
import math
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from apps.rollouts.search.filters.filter_keys import KEYS, Kind

Sign = Literal["=", ">", ">=", "<", "<="]


class FilterRefused(Exception):
    """Raised for an invalid filter.

    `start` and `end` are character positions in the text, `key` is the unknown key, `suggestion` a possible correction.
    """

    def __init__(self, message: str, *, start: int, end: int, key: str = "", suggestion: str = "") -> None:
        super().__init__(message)
        self.start, self.end, self.key, self.suggestion = start, end, key, suggestion


@dataclass(frozen=True, slots=True)
class Number:
    sign: Sign
    number: float


@dataclass(frozen=True, slots=True)
class Between:
    """A range. Both ends are included unless marked as exclusive."""

    low: float
    high: float
    above: bool = False
    below: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    text: str


class ScanValue(NamedTuple):
    """A value of the key `scan`: the number of a scan, and perhaps a sign with an answer.

    `number` is the answer as a number, None if it is not one.
    """

    scan: int
    sign: Sign
    answer: str
    number: float | None


_SCAN = re.compile(r"#?([0-9]{1,18})(?:(=|>=|<=|>|<)(.+))?", re.DOTALL)


def read_scan_value(text: str) -> ScanValue | None:
    """Return a value of the key `scan`, or None if it is invalid. Without an answer, `answer` is empty."""
    found = _SCAN.fullmatch(text)
    if found is None:
        return None
    sign: Sign = found[2] or "="  # type: ignore[assignment]
    answer, number = (found[3] or "").strip(), None
    with contextlib.suppress(ValueError):
        number = float(answer) if math.isfinite(float(answer)) else None
    return ScanValue(int(found[1]), sign, answer, number) if sign == "=" or number is not None else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """`text` with `*` as a wildcard. In trace words, it matches the beginning of the last word."""

    text: str


@dataclass(frozen=True, slots=True)
class Anything:
    """Matches any value."""


Value = Number | Between | Text | Pattern | Anything


@dataclass(frozen=True, slots=True)
class Term:
    key: str
    values: tuple[Value, ...]
    negated: bool = False
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Filter:
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(write_term(term) for term in self.terms)

    def without(self, *keys: str) -> "Filter":
        return Filter(tuple(term for term in self.terms if term.key not in keys))

    def asks_for(self, *keys: str) -> bool:
        return any(term.key in keys for term in self.terms)


_PLAIN = re.compile(r"[^\s\",*:\\<>=-][^\s\",*:\\]*")


def find_scans(parsed: Filter) -> list[int]:
    """Return the numbers of the scans that a filter names, in order."""
    values = [
        value.text for term in parsed.terms if term.key == "scan" for value in term.values if isinstance(value, Text)
    ]
    return sorted({given.scan for given in map(read_scan_value, values) if given})


def write_term(term: Term) -> str:
    """Return the filter text of a term."""
    values = ",".join(_write_value(term.key, value) for value in term.values)
    return f"{'-' if term.negated else ''}{term.key}:{values}"


def _write_value(key: str, value: Value) -> str:
    match value:
        case Anything():
            return "*"
        case Number(sign, number):
            return f"{'' if sign == '=' else sign}{write_number(number)}"
        case Between(low, high, above, below):
            return f"{'>' if above else ''}{write_number(low)}..{'<' if below else ''}{write_number(high)}"
        case Pattern(text) if KEYS[key].kind is Kind.WORDS:
            return f"{_quoted(text)}*" if not _PLAIN.fullmatch(text) else f"{text}*"
        case Pattern(text):
            return text
        case Text(text):
            return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_number(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
