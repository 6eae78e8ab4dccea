"""Shorten text: redact credentials first, then cut.

In the other order, half a credential could remain, for example `https://user:passw`, which no rule recognises.
"""

from apps.gym.redaction.redactor import Redactor

_BODY_BYTES = 64 * 1024
"""Bytes of a response body to decode: more than is shown, so that a credential at the cut is still whole."""


class _Current:
    """Holds the redactor of this process. The default knows credential formats, but no patterns of the installation."""

    redactor = Redactor()


def set_shortening_redactor(redactor: Redactor) -> None:
    """Set the redactor for text to shorten. Called when the installation's patterns have been loaded."""
    _Current.redactor = redactor


def cut_clean(text: str, limit: int) -> str:
    """Redact text and return at most `limit` characters. For text that is not redacted again before it is stored."""
    return _Current.redactor.redact_text(text)[0][:limit]


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters. Longer text is redacted before it is cut.

    Text within the limit is returned unchanged: the code that stores it redacts it and counts the redactions.
    """
    return text if len(text) <= limit else cut_clean(text, limit)


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters, with "…" after them if text is missing. Longer text is redacted first."""
    if len(text) <= limit:
        return text
    clean, _ = _Current.redactor.redact_text(text)
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def cut_middle(text: str, limit: int) -> str:
    """Return longer text, redacted, with its middle replaced by the number of omitted characters."""
    if len(text) <= limit:
        return text
    clean, _ = _Current.redactor.redact_text(text)
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half:,} characters left out …]\n{clean[-half:]}"


def pointer_step(name: object, limit: int) -> str:
    """Return a name as one segment of a JSON pointer. Redacted first: escaping would hide the `//` of a URL."""
    return cut_clean(str(name), limit).replace("~", "~0").replace("/", "~1")


def keep_end(text: str, limit: int) -> str:
    """Return the last `limit` characters. Longer text is redacted before it is cut."""
    return text if len(text) <= limit else _Current.redactor.redact_text(text)[0][-limit:]


def cut_body(body: bytes, limit: int) -> str:
    """Return at most the first `limit` characters of a response body, redacted like `cut`."""
    return cut(body[:_BODY_BYTES].decode(errors="replace"), limit).strip()
