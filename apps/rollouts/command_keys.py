"""The secret with which web processes prove to workers that they are part of this installation."""

from django.utils.crypto import salted_hmac


def command_key() -> str:
    return salted_hmac("apps.rollouts.external_attempts", "commands", algorithm="sha256").hexdigest()
