"""The secret that web processes send to workers to prove that they belong to this installation."""

from django.utils.crypto import salted_hmac


def command_key() -> str:
    return salted_hmac("apps.rollouts.external_attempts", "commands", algorithm="sha256").hexdigest()
