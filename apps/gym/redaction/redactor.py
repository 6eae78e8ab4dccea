"""The redactor: texts, JSON values and encoded JSON without their credentials, and how many there were of each kind.

What has none, nearly everything, costs a few searches for literals in the encoded text and is given back as it is.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from apps.gym.redaction.credential_rules import (
    ASSIGNED,
    BODY,
    CERTAIN_HINTS,
    CERTAIN_NAME,
    CURL_USER,
    ESCAPED_HINT,
    FORMS,
    HIDDEN,
    HIDDEN_HINTS,
    LEAST_NUMBER,
    LIKELY_HINTS,
    LIKELY_NAME,
    LITERALS,
    LONG_RUN,
    LONGEST_PREFIX,
    MAX_NAME,
    NUMBERED,
    OPTION,
    OPTION_HINT,
    PREFIXES,
    QUOTED,
    RUNS,
    START,
    is_assigned,
    is_count,
    is_description,
    is_option,
    is_secret_beside,
    is_user_password,
)

MIN_KNOWN = 12
"""Characters of a secret of our own below which it would be found in every other word."""
MIN_PREFIX = 3

_MARK = re.compile(r"\[REDACTED:([a-z_]{1,32})\]")

Counts = dict[str, int]
"""How many credentials were taken out, by kind."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation adds: a key `name` whose values are credentials, or a `prefix` that credentials begin with,
    followed by at least `least` letters, digits, `_` or `-`. No expressions: one that is slow would stop the engine."""

    kind: str
    name: str = ""
    prefix: str = ""
    least: int = 16


class Redactor:
    """Immutable once made, so that any thread may use it. `known` are secrets of our own, in clear."""

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
        # The longest first: one may begin with another.
        secrets = sorted({one for one in known if len(one) >= MIN_KNOWN}, key=len, reverse=True)
        self._known = tuple(dict.fromkeys(form for one in secrets for form in _written_forms(one)))
        self._names = {pattern.name.lower(): pattern.kind for pattern in patterns if pattern.name}
        self._prefixes = tuple(
            (pattern.kind, _prefix_expression(pattern.prefix, pattern.least)) for pattern in patterns if pattern.prefix
        )
        always = [*self._known, *(one.prefix for one in patterns if one.prefix)]
        self._always = tuple(re.compile(re.escape(_encoded(one))).search for one in always)
        self._lowered = tuple(map(_encoded, self._names))

    def is_suspicious(self, text: str) -> bool:
        """Whether a closer look is due; False is certain. Encoded JSON and what it encodes are both good."""
        if not self.enabled:
            return False
        # As bytes, whose `lower` and search cost the same whatever the alphabet.
        data = _encoded(text)
        lowered = data.lower()
        for search in CERTAIN_HINTS:
            if search(lowered):
                return True
        for search in self._always:
            if search(data):
                return True
        for literal in self._lowered:
            if literal in lowered:
                return True
        if (b"@" in data and b"://" in data) or _has_option(lowered) or _has_hidden(text, data, lowered):
            return True
        return LONG_RUN(data.translate(RUNS)) is not None and _has_form(data, lowered)

    def redact_text(self, text: str) -> tuple[str, Counts]:
        counts: Counter[str] = Counter()
        return (self._clean(text, counts) if self.is_suspicious(text) else text), dict(counts)

    def redact_json(self, payload: str) -> tuple[str, Counts]:
        """Encoded JSON with its texts cleaned; the very same text where there was nothing to clean."""
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
        """A JSON value, cleaned in place; of a text, the clean one."""
        counts: Counter[str] = Counter()
        if not self.enabled:
            return value, {}
        top = [value]
        # With the kind of what stands below a certain name, which is redacted whatever its shape; else an empty text.
        waiting: list[tuple[Any, str]] = [(top, "")]
        # No recursion: how deep strangers nest is theirs to say.
        while waiting:
            one, above = waiting.pop()
            members = list(one.items()) if isinstance(one, dict) else list(enumerate(one))
            for place, member in members:
                if isinstance(member, dict | list):
                    waiting.append((member, self._kind_below(place, member, above)))
                elif isinstance(member, str) and member:
                    kind = self._kind_of_member(place, member) if isinstance(place, str) else ""
                    kind = kind or (above if above and self._is_value(member) else "")
                    clean = self._mark(kind, counts) if kind else self._look(member, counts)
                    if clean is not member:
                        one[place] = clean
                elif kind := self._kind_of_number(place, member, above):
                    one[place] = self._mark(kind, counts)
                if isinstance(place, str):
                    self._clean_name(one, place, counts)
        return top[0], dict(counts)

    def _kind_below(self, place: str | int, member: Any, above: str) -> str:
        """What the texts and numbers in an object or a list are, because of its name or of one above it."""
        kind = (self._kind_of_name(place) if isinstance(place, str) else "") or above
        return "" if kind and is_description(member) else kind

    def _kind_of_name(self, name: str) -> str:
        if len(name) > MAX_NAME:
            return ""
        return self._names.get(name.lower()) or ("named" if CERTAIN_NAME.fullmatch(name) else "")

    def _is_value(self, text: str) -> bool:
        return text not in self._exceptions and is_secret_beside(certain=True, name="", value=text)

    def _kind_of_number(self, place: str | int, number: Any, above: str) -> str:
        # Floats are rewards and times. What is smaller is a count, or as good as known.
        if type(number) is not int or abs(number) < LEAST_NUMBER or is_count(place):
            return ""
        kind = above or (self._kind_of_name(place) if isinstance(place, str) else "")
        # Python writes no longer numbers as texts, and no exception is one.
        return "" if kind and number.bit_length() <= 2048 and str(number) in self._exceptions else kind

    def _clean_name(self, one: dict[str, Any], name: str, counts: Counter[str]) -> None:
        clean = self._look(name, counts)
        if clean is not name:
            one[clean] = one.pop(name)

    def _kind_of_member(self, name: str, value: str) -> str:
        if len(name) > MAX_NAME or value in self._exceptions:
            return ""
        own = self._names.get(name.lower())
        if own and is_secret_beside(certain=True, name=name, value=value):
            return own
        certain = CERTAIN_NAME.fullmatch(name) is not None
        if (certain or LIKELY_NAME.fullmatch(name)) and is_secret_beside(certain=certain, name=name, value=value):
            return "named"
        return ""

    def _look(self, text: str, counts: Counter[str]) -> str:
        return self._clean(text, counts) if self.is_suspicious(text) else text

    def _clean(self, text: str, counts: Counter[str]) -> str:
        for secret in self._known:
            if secret in text:
                counts["own_secret"] += text.count(secret)
                text = text.replace(secret, "[REDACTED:own_secret]")
        text = self._by_form(text, counts)
        if (not text.isascii() or "\\u" in text) and (bare := HIDDEN.sub("", text)) != text:
            # Signs that nobody sees stay where they hide nothing: languages and emoji are written with them.
            found: Counter[str] = Counter()
            clean = self._by_form(bare, found)
            if found:
                text = clean
                counts.update(found)
        text = CURL_USER.sub(lambda match: self._user_password(match, counts), text) if "curl" in text else text
        text = OPTION.sub(lambda match: self._option(match, counts), text) if "--" in text else text
        text = QUOTED.sub(lambda match: self._named(match, counts), text)
        text = ASSIGNED.sub(lambda match: self._assigned(match, counts), text)
        for name, kind in self._names.items():
            if name in text.lower():
                text = self._replace(kind, _own_name(name), None, text, counts)
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
            if secret in self._exceptions or "[REDACTED:" in secret or (check and not check(secret)):
                return match[0]
            return self._within(match, group, kind, counts)

        return expression.sub(replaced, text)

    def _named(self, match: re.Match[str], counts: Counter[str]) -> str:
        name, value = match["certain"] or match["likely"], match["secret"]
        if value in self._exceptions or not is_secret_beside(certain=bool(match["certain"]), name=name, value=value):
            return match[0]
        return self._within(match, "secret", "named", counts)

    def _assigned(self, match: re.Match[str], counts: Counter[str]) -> str:
        if match["secret"] in self._exceptions or not is_assigned(match):
            return match[0]
        return self._within(match, "secret", "named", counts)

    def _option(self, match: re.Match[str], counts: Counter[str]) -> str:
        if match["secret"] in self._exceptions or not is_option(match):
            return match[0]
        return self._within(match, "secret", "named", counts)

    def _user_password(self, match: re.Match[str], counts: Counter[str]) -> str:
        if match["secret"] in self._exceptions or not is_user_password(match["secret"]):
            return match[0]
        return self._within(match, "secret", "named", counts)

    def _within(self, match: re.Match[str], group: str | int, kind: str, counts: Counter[str]) -> str:
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return f"{match[0][:start]}{self._mark(kind, counts)}{match[0][end:]}"

    def _mark(self, kind: str, counts: Counter[str]) -> str:
        counts[kind] += 1
        return f"[REDACTED:{kind}]"


def count_marks(text: str) -> Counts:
    """How many credentials were taken out of a text, by what stands in their places."""
    return dict(Counter(_MARK.findall(text)))


def _has_form(data: bytes, lowered: bytes) -> bool:
    """Whether a literal of one of the forms stands there, or a name that means something beside what looks random."""
    if any(search(data) for search in LITERALS):
        return True
    for match in BODY.finditer(data):
        end = match.start() + 1
        if data[max(0, end - LONGEST_PREFIX) : end].endswith(PREFIXES):
            return True
    if any(data[max(0, match.start() - 8) : match.start()].isdigit() for match in NUMBERED.finditer(data)):
        return True
    return any(search(lowered) for search in LIKELY_HINTS)


def _has_option(lowered: bytes) -> bool:
    # One character is found many times faster than any expression.
    return b"-" in lowered and OPTION_HINT(lowered) is not None


def _has_hidden(text: str, data: bytes, lowered: bytes) -> bool:
    if b"\\" in lowered and ESCAPED_HINT(lowered):
        return True
    return not text.isascii() and any(search(data) for search in HIDDEN_HINTS) and HIDDEN.search(text) is not None


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _written_forms(secret: str) -> list[str]:
    """As it is, inside JSON, and inside a URL."""
    return list(dict.fromkeys([secret, json.dumps(secret)[1:-1], quote(secret, safe="")]))


def _prefix_expression(prefix: str, least: int) -> re.Pattern[str]:
    return re.compile(rf"{START}{re.escape(prefix)}[A-Za-z0-9_-]{{{least},}}")


def _own_name(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(name)}\\{{0,3}}[\"']?\s{{0,4}}[:=]\s{{0,4}}\\{{0,3}}[\"']?"
        r"(?P<secret>[^\s\"'`,;(){}<>\[\]&|\\]{4,2048})",
        re.IGNORECASE,
    )
