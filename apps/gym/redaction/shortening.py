"""Shorten text: redact credentials first, then cut.

The other order would leave half a credential, for example `https://user:passw`, which no rule recognises.
"""

from apps.gym.redaction.redactor import Redactor

_BODY_BYTES = 64 * 1024
"""Bytes of a response body to decode: more than `limit`, so that a credential at the cut is whole when redacted."""


class _Current:
    """The redactor of this process. Until the installation's patterns are loaded, it knows only credential formats."""

    redactor = Redactor()


def set_shortening_redactor(redactor: Redactor) -> None:
    """Set the redactor that shortened text is redacted with, once the installation's patterns are loaded."""
    _Current.redactor = redactor


def cut_clean(text: str, limit: int) -> str:
    """Return at most `limit` characters, always redacted. For texts that are not redacted again before storing."""
    return _Current.redactor.redact_text(text)[0][:limit]


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters.

    Text within the limit is returned unchanged: the code that stores it redacts it and counts redactions.
    """
    return text if len(text) <= limit else cut_clean(text, limit)


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters, followed by "…" if text was cut."""
    if len(text) <= limit:
        return text
    clean, _ = _Current.redactor.redact_text(text)
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def cut_middle(text: str, limit: int) -> str:
    """Return the start and end of longer text, with the number of omitted characters between them."""
    if len(text) <= limit:
        return text
    clean, _ = _Current.redactor.redact_text(text)
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half:,} characters left out …]\n{clean[-half:]}"


def pointer_step(name: object, limit: int) -> str:
    """Return a name as a step of a JSON pointer. Redacts first: escaping would hide the `//` of a URL."""
    return cut_clean(str(name), limit).replace("~", "~0").replace("/", "~1")


def keep_end(text: str, limit: int) -> str:
    """Return the end of longer text."""
    return text if len(text) <= limit else _Current.redactor.redact_text(text)[0][-limit:]


def cut_body(body: bytes, limit: int) -> str:
    """Return the start of a response as text."""
    return cut(body[:_BODY_BYTES].decode(errors="replace"), limit).strip()
