"""Remove credentials from texts, JSON values and encoded JSON, and count them by kind.

Fast path: one search over the encoded text finds out whether any rule can match.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any
from urllib.parse import quote

import msgspec
import re2

from apps.gym.image_data import is_data_url
from apps.gym.redaction.credential_rules import (
    ASSIGNED,
    CERTAIN_NAME,
    CURL_USER,
    FORMS,
    HIDDEN,
    HINTS,
    LEAST_NUMBER,
    LIKELY_NAME,
    MAX_NAME,
    OPTION,
    QUOTED,
    START,
    is_assigned_secret,
    is_count,
    is_description,
    is_named_secret,
    is_option_secret,
    is_quoted_secret,
    is_user_password,
)

MIN_KNOWN = 12
"""Minimum length of the installation's own secrets: shorter ones would match ordinary words."""
MIN_PREFIX = 3

MARK = "[REDACTED:"
_MARK = re.compile(r"\[REDACTED:([a-z_]{1,32})\]")

Counts = dict[str, int]
"""Number of removed credentials, by kind."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """An additional rule of an installation.

    It is a key `name` whose values are credentials, or a `prefix` of credentials, followed by at least `least` letters,
    digits, `_` or `-`.

    Regular expressions are not allowed, because a slow one would block the engine.
    """

    kind: str
    name: str = ""
    prefix: str = ""
    least: int = 16


class Redactor:
    """Redact by the rules. Images as data URLs are never changed: a match in them would be a coincidence.

    Immutable, so any thread may use it. `known` are secrets of this installation in clear text.
    """

    def __init__(
        self,
        *,
        known: Iterable[str] = (),
        patterns: Sequence[Pattern] = (),
        exceptions: Iterable[str] = (),
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        self._exceptions = frozenset(filter(None, exceptions))
        # Longest first, because one may begin with another.
        secrets = sorted({one for one in known if len(one) >= MIN_KNOWN}, key=len, reverse=True)
        self._known = tuple(dict.fromkeys(form for one in secrets for form in _written_forms(one)))
        self._names = {pattern.name.lower(): pattern.kind for pattern in patterns if pattern.name}
        self._prefixes = tuple(
            (pattern.kind, re.compile(rf"{START}{re.escape(pattern.prefix)}[A-Za-z0-9_-]{{{pattern.least},}}"))
            for pattern in patterns
            if pattern.prefix
        )
        always = [*self._known, *(one.prefix for one in patterns if one.prefix)]
        names = [f"(?i:{_escape(name)})" for name in self._names]
        self._suspicion = _any_of((*HINTS, *map(_escape, always), *names))

    def is_suspicious(self, text: str) -> bool:
        """Return False if the text certainly has no credential. Accepts plain text and encoded JSON."""
        return self.enabled and self._suspicion.search(text.encode(errors="surrogatepass")) is not None

    def redact_text(self, text: str) -> tuple[str, Counts]:
        counts: Counter[str] = Counter()
        if is_data_url(text):
            return text, {}
        return (self._clean(text, counts) if self.is_suspicious(text) else text), dict(counts)

    def redact_json(self, payload: str) -> tuple[str, Counts]:
        """Return encoded JSON with its texts redacted; the same object if nothing was redacted."""
        if not self.is_suspicious(payload):
            return payload, {}
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            return self.redact_text(payload)
        cleaned, counts = self.redact_value(value)
        if not counts:
            return payload, {}
        try:
            return msgspec.json.encode(cleaned).decode(), counts
        except (msgspec.EncodeError, OverflowError, UnicodeEncodeError):
            return json.dumps(cleaned, ensure_ascii=True), counts

    def redact_value(self, value: Any) -> tuple[Any, Counts]:
        """Redact a JSON value in place and return it. Return a new text for a text."""
        counts: Counter[str] = Counter()
        if not self.enabled:
            return value, {}
        top = [value]
        # The kind if the value is below a field that is always redacted; otherwise empty.
        waiting: list[tuple[Any, str]] = [(top, "")]
        # Without recursion, because untrusted input decides the nesting.
        while waiting:
            one, above = waiting.pop()
            members = list(one.items()) if isinstance(one, dict) else list(enumerate(one))
            for place, member in members:
                if isinstance(member, dict | list):
                    waiting.append((member, self._kind_below(place, member, above)))
                elif isinstance(member, str) and member and not is_data_url(member):
                    kind = self._kind_of_member(place, member) if isinstance(place, str) else ""
                    kind = kind or (above if above and self._is_credential(member) else "")
                    clean = self._mark(kind, counts) if kind else self._clean_if_suspicious(member, counts)
                    if clean is not member:
                        one[place] = clean
                elif kind := self._kind_of_number(place, member, above):
                    one[place] = self._mark(kind, counts)
                if isinstance(place, str):
                    self._clean_name(one, place, counts)
        return top[0], dict(counts)

    def _kind_below(self, place: str | int, member: Any, above: str) -> str:
        """Return the kind as which the texts and numbers in an object or list are redacted, or an empty text.

        Harmless ones, such as placeholders and counts, are kept. Its name or a parent's name decides.
        """
        kind = (self._kind_of_name(place) if isinstance(place, str) else "") or above
        return "" if kind and is_description(member) else kind

    def _kind_of_name(self, name: str) -> str:
        if len(name) > MAX_NAME:
            return ""
        return self._names.get(name.lower()) or ("named" if CERTAIN_NAME.fullmatch(name) else "")

    def _is_credential(self, text: str) -> bool:
        return text not in self._exceptions and is_named_secret(certain=True, name="", value=text)

    def _kind_of_number(self, place: str | int, number: Any, above: str) -> str:
        # Floats are rewards and times. Small numbers are counts or easy to guess.
        if type(number) is not int or abs(number) < LEAST_NUMBER or is_count(place):
            return ""
        kind = above or (self._kind_of_name(place) if isinstance(place, str) else "")
        # Numbers above 2,048 bits are never looked up in the exceptions: Python refuses to write more than 4,300 digits
        # as text.
        return "" if kind and number.bit_length() <= 2048 and str(number) in self._exceptions else kind

    def _clean_name(self, one: dict[str, Any], name: str, counts: Counter[str]) -> None:
        clean = self._clean_if_suspicious(name, counts)
        if clean is not name:
            one[clean] = one.pop(name)

    def _kind_of_member(self, name: str, value: str) -> str:
        if len(name) > MAX_NAME or value in self._exceptions:
            return ""
        own = self._names.get(name.lower())
        if own and is_named_secret(certain=True, name=name, value=value):
            return own
        certain = CERTAIN_NAME.fullmatch(name) is not None
        if (certain or LIKELY_NAME.fullmatch(name)) and is_named_secret(certain=certain, name=name, value=value):
            return "named"
        return ""

    def _clean_if_suspicious(self, text: str, counts: Counter[str]) -> str:
        return self._clean(text, counts) if self.is_suspicious(text) else text

    def _clean(self, text: str, counts: Counter[str]) -> str:
        for secret in self._known:
            if secret in text:
                counts["own_secret"] += text.count(secret)
                text = text.replace(secret, "[REDACTED:own_secret]")
        text = self._by_form(text, counts)
        if (not text.isascii() or "\\u" in text) and (bare := HIDDEN.sub("", text)) != text:
            # Invisible characters that hide nothing are kept: some languages and emoji need them.
            found: Counter[str] = Counter()
            clean = self._by_form(bare, found)
            if found:
                text = clean
                counts.update(found)
        text = self._redact_named(CURL_USER, is_user_password, text, counts) if "curl" in text else text
        text = self._redact_named(OPTION, is_option_secret, text, counts) if "--" in text else text
        text = self._redact_named(QUOTED, is_quoted_secret, text, counts)
        text = self._redact_named(ASSIGNED, is_assigned_secret, text, counts)
        for name, kind in self._names.items():
            if name in text.lower():
                text = self._replace(kind, _key_value_expression(name), None, text, counts)
        return text

    def _by_form(self, text: str, counts: Counter[str]) -> str:
        for form in FORMS:
            if any(literal in text for literal in form.literals):
                text = self._replace(form.kind, form.expression, form.check, text, counts)
        for kind, expression in self._prefixes:
            text = self._replace(kind, expression, None, text, counts)
        return text

    def _replace(self, kind: str, expression: re.Pattern[str], check: Any, text: str, counts: Counter[str]) -> str:
        group: str | int = "secret" if "secret" in expression.groupindex else 0

        def replaced(match: re.Match[str]) -> str:
            secret = match[group]
            if secret in self._exceptions or MARK in secret or (check and not check(secret)):
                return match[0]
            return self._within(match, group, kind, counts)

        return expression.sub(replaced, text)

    def _redact_named(
        self, expression: re.Pattern[str], is_secret: Callable[[re.Match[str]], bool], text: str, counts: Counter[str]
    ) -> str:
        """Return the text without secrets next to a name that suggests one."""

        def replaced(match: re.Match[str]) -> str:
            if match["secret"] in self._exceptions or not is_secret(match):
                return match[0]
            return self._within(match, "secret", "named", counts)

        return expression.sub(replaced, text)

    def _within(self, match: re.Match[str], group: str | int, kind: str, counts: Counter[str]) -> str:
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return f"{match[0][:start]}{self._mark(kind, counts)}{match[0][end:]}"

    def _mark(self, kind: str, counts: Counter[str]) -> str:
        counts[kind] += 1
        return f"[REDACTED:{kind}]"


def list_kinds(counts: Counts) -> str:
    """Return the kinds in words, for messages."""
    return ", ".join(sorted("by field name" if kind == "named" else kind.replace("_", " ") for kind in counts))


def count_marks(text: str) -> Counts:
    """Return the number of redactions in a text, by marker."""
    return dict(Counter(_MARK.findall(text)))


@cache
def _any_of(expressions: tuple[str, ...]) -> Any:
    """Return one RE2 expression for all `expressions`. A search takes time linear in the length of the text."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    return re2.compile("|".join(expressions).encode("latin-1"), options)


def _escape(text: str) -> str:
    """Return an expression for the UTF-8 of a text."""
    escaped: bytes = re2.escape(text.encode(errors="surrogatepass"))
    return escaped.decode("latin-1")


def _written_forms(secret: str) -> list[str]:
    """Return a secret as plain text, inside JSON, and inside a URL."""
    return list(dict.fromkeys([secret, json.dumps(secret)[1:-1], quote(secret, safe="")]))


def _key_value_expression(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(name)}\\{{0,3}}[\"']?\s{{0,4}}[:=]\s{{0,4}}\\{{0,3}}[\"']?"
        r"(?P<secret>[^\s\"'`,;(){}<>\[\]&|\\]{4,2048})",
        re.IGNORECASE,
    )
