"""Encrypt API keys with a key derived from GYMWEB_SECRET_KEY."""

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from apps.gym.errors import PolicyError

_SHOWN_CHARACTERS = 4
_HINTED_FROM = 12  # four characters of a shorter key would reveal too much


class SecretUnreadable(PolicyError):
    """Raised if the stored key is damaged or was encrypted with another GYMWEB_SECRET_KEY."""


def encrypt_secret(secret: str) -> str:
    return _cipher(settings.SECRET_KEY).encrypt(secret.encode()).decode()


def decrypt_secret(token: str) -> str:
    try:
        return _cipher(settings.SECRET_KEY).decrypt(token.encode()).decode()
    except InvalidToken:
        raise SecretUnreadable(
            "The stored API key cannot be decrypted: GYMWEB_SECRET_KEY has changed. Enter the key again."
        ) from None


def hint_of(secret: str) -> str:
    """Return the last characters of a secret, as a hint for users."""
    if not secret:
        return ""
    return "…" + secret[-_SHOWN_CHARACTERS:] if len(secret) >= _HINTED_FROM else "…"


@functools.lru_cache(maxsize=4)
def _cipher(secret_key: str) -> Fernet:
    # `info` separates this key from others derived from the same secret.
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"gymweb.policies.secrets.v1")
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))
