"""System check of the allow list for outbound calls, which guards models first of all."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from apps.gym.calls.outbound_policy import OutboundPolicy


def check_outbound_allow(**kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for entry in settings.OUTBOUND_ALLOW:
        try:
            OutboundPolicy([entry])
        except ValueError as problem:
            found.append(
                Error(
                    str(problem),
                    hint="Write host names, host:port, addresses, or networks such as 10.0.0.0/8, with commas between.",
                    id="policies.E001",
                )
            )
    return found
