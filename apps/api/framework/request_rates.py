"""Rate limits in requests per minute, per API key or user and per client address."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.accounts.client_address import client_address, sees_client_addresses
from apps.accounts.models import ApiKey
from apps.accounts.request_limits import ADDRESSES, CALLERS
from apps.accounts.tallies import network_of


class RateThrottle(BaseThrottle):
    """Limit authenticated requests. Failed authentication counts against the address (see ApiKeyAuthentication)."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.seconds_to_wait = CALLERS.take(_caller(request), settings.API_RATE)
        if not self.seconds_to_wait and sees_client_addresses():
            self.seconds_to_wait = ADDRESSES.take(
                network_of(client_address(request._request)), settings.API_ADDRESS_RATE
            )
        return not self.seconds_to_wait

    def wait(self) -> float:
        return self.seconds_to_wait


def _caller(request: Request) -> str:
    if isinstance(request.auth, ApiKey):
        return f"key {request.auth.pk}"
    return f"user {request.user.pk}" if request.user.is_authenticated else "anonymous"
