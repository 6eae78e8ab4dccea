"""Encrypt values with keys derived from GYMWEB_SECRET_KEY, one key for each purpose."""

import base64
import functools
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


class Undecryptable(Exception):
    """Raised for a value that is damaged or was encrypted with another key."""


def encrypt(text: str, *, purpose: str) -> str:
    return _cipher(settings.SECRET_KEY, purpose).encrypt(text.encode()).decode()


def decrypt(token: str, *, purpose: str) -> str:
    """Return the text. Raises Undecryptable, also for a value of another purpose."""
    from cryptography.fernet import InvalidToken

    try:
        return _cipher(settings.SECRET_KEY, purpose).decrypt(token.encode()).decode()
    except InvalidToken:
        raise Undecryptable from None


@functools.lru_cache(maxsize=8)
def _cipher(secret_key: str, purpose: str) -> "Fernet":
    # Imported here, because it takes 9 MB, and most processes decrypt nothing.
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))
