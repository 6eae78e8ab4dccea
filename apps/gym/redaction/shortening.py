"""A text that is too long for where it goes: its credentials are taken out first, and only then is it cut.

The other way round half a credential is left, `https://user:passw`, and no rule knows that half for what it is.
"""

from apps.gym.redaction.redactor import Redactor

_BODY_BYTES = 64 * 1024
"""Of a body that somebody answered: what is shown of it and any credential that begins there."""


class _Standing:
    """What every text of this process is shortened with; the forms alone, until somebody knows more."""

    redactor = Redactor()


def shorten_with(redactor: Redactor) -> None:
    """From now on this process shortens with the installation's own secrets and patterns as well."""
    _Standing.redactor = redactor


def cut_clean(text: str, limit: int) -> str:
    """At most `limit` characters without credentials, also where it fits: for what is stored without another look."""
    return _Standing.redactor.redact_text(text)[0][:limit]


def cut(text: str, limit: int) -> str:
    """At most `limit` characters. What fits comes back as it is: who stores it redacts and counts it there."""
    return text if len(text) <= limit else cut_clean(text, limit)


def shorten(text: str, limit: int) -> str:
    """The same, with a mark after it where something was cut."""
    if len(text) <= limit:
        return text
    clean, _ = _Standing.redactor.redact_text(text)
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def cut_middle(text: str, limit: int) -> str:
    """The beginning and the end of what is longer, and between them how much was left out."""
    if len(text) <= limit:
        return text
    clean, _ = _Standing.redactor.redact_text(text)
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half:,} characters left out …]\n{clean[-half:]}"


def pointer_step(name: object, limit: int) -> str:
    """A name as one step of a JSON pointer: its escapes would hide the `//` of a URL from whoever redacts later."""
    return cut_clean(str(name), limit).replace("~", "~0").replace("/", "~1")


def cut_to_end(text: str, limit: int) -> str:
    """The end of what is longer."""
    return text if len(text) <= limit else _Standing.redactor.redact_text(text)[0][-limit:]


def cut_body(body: bytes, limit: int) -> str:
    """The beginning of an answer as text."""
    return cut(body[:_BODY_BYTES].decode(errors="replace"), limit).strip()
