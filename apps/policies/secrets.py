"""Encrypt API keys with a key derived from GYMWEB_SECRET_KEY."""

from apps.accounts.encryption import Undecryptable, decrypt, encrypt
from apps.gym.errors import PolicyError

_PURPOSE = "gymweb.policies.secrets.v1"
_SHOWN_CHARACTERS = 4
_HINTED_FROM = 12  # four characters of a shorter key would reveal too much


class SecretUnreadable(PolicyError):
    """Raised if the stored key is damaged or was encrypted with another GYMWEB_SECRET_KEY."""


def encrypt_secret(secret: str) -> str:
    return encrypt(secret, purpose=_PURPOSE)


def decrypt_secret(token: str) -> str:
    try:
        return decrypt(token, purpose=_PURPOSE)
    except Undecryptable:
        raise SecretUnreadable(
            "The stored API key cannot be decrypted: GYMWEB_SECRET_KEY has changed. Enter the key again."
        ) from None


def hint_of(secret: str) -> str:
    """Return the last characters of a secret, as a hint for users."""
    if not secret:
        return ""
    return "…" + secret[-_SHOWN_CHARACTERS:] if len(secret) >= _HINTED_FROM else "…"
