"""Hide GymWeb's secrets in the texts of an endpoint, which may repeat its request."""

from collections.abc import Iterable

SHORTEST_SECRET = 4
"""Shorter keys, for example `x` for a server without keys, would match in every message."""
MARK = "[API key]"


def hide_secrets(message: str, secrets: Iterable[str]) -> str:
    """Return the text with a mark in place of each secret."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET and secret in message:
            message = message.replace(secret, MARK)
    return message


class SecretFilter:
    """Hides secrets in a text that arrives in pieces.

    Text at the end that may be the start of a secret is withheld until the next piece.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on."""
        if not self._secrets:
            return piece
        text = hide_secrets(self._held + piece, self._secrets)
        end = len(text)
        for secret in self._secrets:
            end = min(end, _find_partial_secret(text, secret))
        self._held = text[end:]
        return text[:end]

    def flush(self) -> str:
        """Return the held text, because no more pieces follow."""
        held, self._held = self._held, ""
        return held


def _find_partial_secret(text: str, secret: str) -> int:
    """Return the index at which an incomplete secret starts at the end of the text, or the length of the text."""
    start = text.find(secret[0], max(len(text) - len(secret) + 1, 0))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[0], start + 1)
    return len(text) if start < 0 else start
