"""Encrypt values with keys derived from GYMWEB_SECRET_KEY, one key for each purpose."""

import base64
import functools

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


def cipher_for(purpose: str) -> Fernet:
    """Return the cipher of a purpose. Values of one purpose cannot be decrypted as another."""
    return _derive(settings.SECRET_KEY, purpose)


@functools.lru_cache(maxsize=8)
def _derive(secret_key: str, purpose: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))
