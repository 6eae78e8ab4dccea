"""API key authentication. Browsers use their session instead, with a CSRF check."""

from django.conf import settings
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from apps.accounts.api_keys import find_api_key
from apps.accounts.client_address import client_address, sees_client_addresses
from apps.accounts.models import ApiKey, User
from apps.accounts.request_limits import ADDRESSES
from apps.accounts.tallies import network_of


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticate `Authorization: Bearer gw_<prefix>_<secret>`.

    Requests with a key need no CSRF token, because other sites cannot make a browser send this header.
    """

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != self.keyword.lower().encode():
            return None
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            # With both, it would be ambiguous whether a CSRF token is required.
            raise AuthenticationFailed("Send either an API key or the cookie of a session, not both.")
        address = client_address(request._request)
        network, rate = network_of(address), settings.API_ADDRESS_RATE if sees_client_addresses() else 0
        if seconds := ADDRESSES.wait(network, rate):
            raise Throttled(seconds)
        api_key = find_api_key(words[1].decode("latin-1"), address=address) if len(words) == 2 else None
        if api_key is None:
            ADDRESSES.take(network, rate)
            raise AuthenticationFailed("This API key is unknown, revoked or expired, or its owner must sign in again.")
        return api_key.user, api_key

    def authenticate_header(self, request: Request) -> str:
        return f'{self.keyword} realm="api"'
