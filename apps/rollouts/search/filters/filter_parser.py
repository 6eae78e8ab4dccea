"""Parse filter text without database access. Errors have the position of the problem."""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

from apps.gym.redaction.shortening import cut
from apps.rollouts.search.filters.filter_grammar import (
    Anything,
    Between,
    Filter,
    FilterRefused,
    Number,
    Pattern,
    Sign,
    Term,
    Text,
    Value,
    read_scan_value,
)
from apps.rollouts.search.filters.filter_keys import ALIASES, KEYS, Key, Kind
from apps.rollouts.search.word_splitting import split_words

MAX_LENGTH = 2_000
MAX_TERMS = 40
MAX_VALUES = 50
MAX_STARS = 4
MAX_NUMBER = 1e15
_KEY = re.compile(r"[^\s:\",-][^\s:\",]*(?=:)")
_BARE = re.compile(r"[^\s\",]+")
_WORD = re.compile(r"[^\s\"]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?[kKmM]?")
_SIGNS: tuple[Sign, ...] = (">=", "<=", ">", "<", "=")
_TIMES = {"k": 1e3, "m": 1e6}


def parse_filter(text: str) -> Filter:
    """Return the parsed filter. Raise FilterRefused if it is invalid."""
    if len(text) > MAX_LENGTH:
        raise FilterRefused(f"A filter has at most {MAX_LENGTH:,} characters.", start=MAX_LENGTH, end=len(text))
    terms: list[Term] = []
    reader = _Reader(text)
    while reader.skip_spaces():
        terms.append(reader.read_term())
        if len(terms) > MAX_TERMS:
            raise FilterRefused(f"A filter has at most {MAX_TERMS} terms.", start=terms[-1].start, end=terms[-1].end)
    return Filter(tuple(terms))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def skip_spaces(self) -> bool:
        """Skip spaces. Return True if more text follows."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def read_term(self) -> Term:
        start = self._at
        negated = self._take("-")
        if negated and (self._ended() or self._text[self._at].isspace()):
            raise FilterRefused("Put “-” directly before the term to exclude.", start=start, end=self._at)
        found = _KEY.match(self._text, self._at)
        if found is None:
            return Term("text", (self._read_words(),), negated, start, self._at)
        self._at = found.end()
        key = _find_key(found[0], start=found.start(), end=found.end())
        self._at += 1
        return Term(key.name, self._read_values(key), negated, start, self._at)

    def _read_words(self) -> Value:
        """Read words without a key, which match words of the trace."""
        if self._peek() == '"':
            value = self._read_value(KEYS["text"])
            self._end_of_value()
            return value
        start = self._at
        found = _WORD.match(self._text, self._at)
        assert found is not None  # not followed by a space
        self._at = found.end()
        self._end_of_value()
        return _read_text(KEYS["text"], found[0], start=start, end=self._at)

    def _read_values(self, key: Key) -> tuple[Value, ...]:
        values = [self._read_value(key)]
        while self._take(","):
            values.append(self._read_value(key))
            if len(values) > MAX_VALUES:
                raise FilterRefused(f"A term has at most {MAX_VALUES} values.", start=self._at - 1, end=self._at)
        self._end_of_value()
        return tuple(values)

    def _read_value(self, key: Key) -> Value:
        start = self._at
        if self._peek() == '"':
            return self._read_quoted(key)
        found = _BARE.match(self._text, self._at)
        if found is None:
            raise FilterRefused(f"{key.name}: needs a value, like {key.example}.", start=start, end=start)
        self._at = found.end()
        return _read_bare(key, found[0], start=start, end=self._at)

    def _read_quoted(self, key: Key) -> Value:
        start = self._at
        found = _QUOTED.match(self._text, self._at)
        if found is None:
            message = "This quotation mark is not closed."
            raise FilterRefused(message, start=start, end=len(self._text))
        self._at = found.end()
        text = re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)
        if not text.strip():
            raise FilterRefused("These quotation marks are empty.", start=start, end=self._at)
        if key.kind in (Kind.NUMBER, Kind.COUNT):
            return _read_number(key, text, start=start, end=self._at)
        if key.kind is Kind.WORDS and self._take("*"):
            return Pattern(_chosen(key, text, start=start, end=self._at).text)
        return _chosen(key, text, start=start, end=self._at)

    def _end_of_value(self) -> None:
        if not self._ended() and not self._text[self._at].isspace():
            message = "Add a space here, or put the whole value into quotation marks."
            raise FilterRefused(message, start=self._at, end=self._at + 1)

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _ended(self) -> bool:
        return self._at >= len(self._text)


def _find_key(name: str, *, start: int, end: int) -> Key:
    folded = name.lower().replace("-", "_")
    if key := KEYS.get(ALIASES.get(folded, folded)):
        return key
    meant = _closest(folded, [*KEYS, *ALIASES])
    hint = f"Did you mean {meant}:?" if meant else f"Keys: {', '.join(KEYS)}."
    message = f"Unknown key “{cut(name, 60)}”. {hint} To search for text, put it in quotation marks."
    raise FilterRefused(message, start=start, end=end, key=name, suggestion=meant)


def _closest(word: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


def _read_bare(key: Key, text: str, *, start: int, end: int) -> Value:
    if text == "*":
        if key.may_be_missing:
            return Anything()
        raise FilterRefused(f"All rollouts have a value for {key.name}. Give a value.", start=start, end=end)
    if key.kind in (Kind.NUMBER, Kind.COUNT):
        return _read_number(key, text, start=start, end=end)
    return _read_text(key, text, start=start, end=end)


def _read_text(key: Key, text: str, *, start: int, end: int) -> Value:
    if "*" not in text:
        return _chosen(key, text, start=start, end=end)
    if key.kind is Kind.WORDS:
        if text.count("*") == 1 and text.endswith("*") and len(text) > 1:
            return Pattern(_chosen(key, text[:-1], start=start, end=end).text)
        message = "In text, “*” is allowed only at the end of a word."
        raise FilterRefused(message, start=start, end=end)
    if key.kind is not Kind.NAME:
        raise FilterRefused(f"{key.name}: does not allow “*” inside a value.", start=start, end=end)
    if text.count("*") > MAX_STARS:
        raise FilterRefused(f"A name has at most {MAX_STARS} “*”.", start=start, end=end)
    return Pattern(text)


def _chosen(key: Key, text: str, *, start: int, end: int) -> Text:
    if key.kind is Kind.CHOICE and text not in key.choices:
        folded = text.lower().replace("-", "_")
        if folded in key.choices:
            return Text(folded)
        meant = _closest(folded, key.choices)
        hint = f"Did you mean {meant}?" if meant else f"Values: {', '.join(key.choices)}."
        raise FilterRefused(
            f"{key.name} has no value “{cut(text, 60)}”. {hint}", start=start, end=end, suggestion=meant
        )
    if key.kind is Kind.WORDS and not split_words(text):
        raise FilterRefused("This text has no letters or digits to search for.", start=start, end=end)
    if key.kind is Kind.ANSWER and read_scan_value(text) is None:
        message = f"{key.name} needs the number of a scan, and perhaps an answer: {key.example}, scan:3>=2 or scan:3."
        raise FilterRefused(message, start=start, end=end)
    if "\0" in text:
        raise FilterRefused("The NUL character is not allowed.", start=start, end=end)
    return Text(text)


def _read_number(key: Key, text: str, *, start: int, end: int) -> Value:
    low, dots, high = text.partition("..")
    if dots:
        between = Between(
            _number(key, low.removeprefix(">"), start=start, end=end),
            _number(key, high.removeprefix("<"), start=start, end=end),
            above=low.startswith(">"),
            below=high.startswith("<"),
        )
        if between.low > between.high:
            raise FilterRefused("Put the smaller number first.", start=start, end=end)
        return between
    for sign in _SIGNS:
        if text.startswith(sign):
            return Number(sign, _number(key, text[len(sign) :], start=start, end=end))
    return Number("=", _number(key, text, start=start, end=end))


def _number(key: Key, text: str, *, start: int, end: int) -> float:
    if not _NUMBER.fullmatch(text):
        raise FilterRefused(f"{key.name}: needs a number, like {key.example}.", start=start, end=end)
    times = _TIMES.get(text[-1].lower(), 1.0)
    number = float(text[:-1] if times > 1 else text) * times
    if not math.isfinite(number) or abs(number) > MAX_NUMBER:
        raise FilterRefused("This number is too large.", start=start, end=end)
    if key.kind is Kind.COUNT and not number.is_integer():
        raise FilterRefused(f"{key.name} must be a whole number, like {key.example}.", start=start, end=end)
    return number
