"""System check of the allow-list for outbound calls."""

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
                    hint="Give host names, host:port, addresses or networks (for example "
                    "10.0.0.0/8), separated by commas.",
                    id="policies.E001",
                )
            )
    return found
