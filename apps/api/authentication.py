"""Who is calling: a bearer key from a program, or the session of a signed-in browser (with its CSRF check)."""

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts.keys import find_api_key
from apps.accounts.models import ApiKey, User


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer gw_<prefix>_<secret>`. Read from the header only, which no other site can make a browser
    send, so these requests need no CSRF token."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != self.keyword.lower().encode():
            return None
        api_key = find_api_key(words[1].decode("latin-1")) if len(words) == 2 else None
        if api_key is None:
            raise AuthenticationFailed("This API key is unknown, revoked or expired.")
        return api_key.user, api_key

    def authenticate_header(self, request: Request) -> str:
        return f'{self.keyword} realm="api"'
