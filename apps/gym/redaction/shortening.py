"""Shorten text: redact credentials first, then cut.

The other order would leave half a credential, for example `https://user:passw`, which no rule recognises.
"""

from apps.gym.redaction.redactor import Redactor

_BODY_BYTES = 64 * 1024
"""Maximum bytes of a response body to show, including a credential that starts there."""


class _Standing:
    """The redactor that shortens texts in this process. Until patterns are loaded, it knows only credential formats."""

    redactor = Redactor()


def shorten_with(redactor: Redactor) -> None:
    """Use the secrets and patterns of the installation from now on."""
    _Standing.redactor = redactor


def cut_clean(text: str, limit: int) -> str:
    """Return at most `limit` characters, always redacted: for texts that are stored without another redaction."""
    return _Standing.redactor.redact_text(text)[0][:limit]


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters.

    Text that fits is returned unchanged; the code that stores it redacts and counts.
    """
    return text if len(text) <= limit else cut_clean(text, limit)


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters, with a mark if something was cut."""
    if len(text) <= limit:
        return text
    clean, _ = _Standing.redactor.redact_text(text)
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def cut_middle(text: str, limit: int) -> str:
    """Return the start and end of longer text, with the number of omitted characters between them."""
    if len(text) <= limit:
        return text
    clean, _ = _Standing.redactor.redact_text(text)
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half:,} characters left out …]\n{clean[-half:]}"


def pointer_step(name: object, limit: int) -> str:
    """Return a name as a step of a JSON pointer. Redacted first, because its escapes would hide the `//` of a URL."""
    return cut_clean(str(name), limit).replace("~", "~0").replace("/", "~1")


def cut_to_end(text: str, limit: int) -> str:
    """Return the end of longer text."""
    return text if len(text) <= limit else _Standing.redactor.redact_text(text)[0][-limit:]


def cut_body(body: bytes, limit: int) -> str:
    """Return the start of a response as text."""
    return cut(body[:_BODY_BYTES].decode(errors="replace"), limit).strip()
