"""Rate limits in requests per minute: per key or user, and per address. Above, 429 with Retry-After."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.accounts.client_address import client_address, tells_clients_apart
from apps.accounts.models import ApiKey
from apps.accounts.request_limits import ADDRESSES, CALLERS
from apps.accounts.tallies import network_of


class RateThrottle(BaseThrottle):
    """Checked once a request is authenticated. Rejected keys count against their address."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.left = CALLERS.take(_caller(request), settings.API_RATE)
        if not self.left and tells_clients_apart():
            self.left = ADDRESSES.take(network_of(client_address(request._request)), settings.API_ADDRESS_RATE)
        return not self.left

    def wait(self) -> float:
        return self.left


def _caller(request: Request) -> str:
    if isinstance(request.auth, ApiKey):
        return f"key {request.auth.pk}"
    return f"user {request.user.pk}" if request.user.is_authenticated else "nobody"
