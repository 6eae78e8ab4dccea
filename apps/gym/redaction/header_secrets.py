"""Mask the credentials of a request in the text of its reply, because a server may repeat them."""

import base64
import binascii
from collections.abc import Iterable


def header_secrets(values: Iterable[str]) -> list[str]:
    """Return header values and the credentials in them: tokens, and `user:password` of basic authentication."""
    found: set[str] = set()
    for value in values:
        scheme, _, token = value.rpartition(" ")
        found |= {value, token}
        if scheme.strip().lower() == "basic":
            pair = _decode(token)
            found |= {pair, pair.partition(":")[2]}
    # Longest first, so that no part of a longer secret remains.
    return sorted((one for one in found if len(one) > 1), key=len, reverse=True)


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret replaced. Mask before cutting: half a secret is not recognised."""
    for secret in secrets:
        text = text.replace(secret, "…")
    return text


def _decode(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
