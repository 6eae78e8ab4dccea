"""Signatures of webhooks, as https://www.standardwebhooks.com specifies."""

import base64
import binascii
import hmac
import secrets
from datetime import datetime

PREFIX = "whsec_"


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def find_secret_problem(secret: str) -> str:
    """Return why this is not a signing secret; empty if it is one."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        return f"Give {PREFIX} and 24 to 64 random bytes in Base64."
    return ""


def sign(*, secret: str, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a webhook: id, timestamp and signature."""
    timestamp = str(int(now.timestamp()))
    key = base64.b64decode(secret.removeprefix(PREFIX))
    digest = hmac.digest(key, f"{event_id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
