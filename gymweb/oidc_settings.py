"""Settings of single sign-on with OpenID Connect, and of django-allauth, which implements the protocol."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gymweb.environment_variables import Environment, SettingRefused

ALLAUTH_APPS = ["allauth", "allauth.account", "allauth.socialaccount"]
"""Without its app for OpenID Connect, which would import 10 MB into every process.

apps/accounts/single_sign_on/oidc_protocol.py does its work.
"""


@dataclass(frozen=True)
class OidcSettings:
    """Without an issuer, single sign-on is off. gymweb/checks.py checks the combination of the values."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str
    scopes: list[str]
    groups_claim: str
    roles: dict[str, str]
    session_hours: int
    key_days: int

    @property
    def provider_id(self) -> str:
        """Return the id under which accounts are stored, or an empty string if single sign-on is off.

        It depends on the issuer, because the same subject of another issuer is another user.
        """
        return f"oidc-{hashlib.sha256(self.issuer.encode()).hexdigest()[:16]}" if self.issuer else ""

    @property
    def allauth_providers(self) -> dict[str, Any]:
        application = {
            "provider_id": self.provider_id,
            "name": self.name,
            "client_id": self.client_id,
            "secret": self.client_secret,
            "settings": {
                "server_url": f"{self.issuer.rstrip('/')}/.well-known/openid-configuration",
                "oauth_pkce_enabled": True,
                "scope": self.scopes,
                # A client without a secret names itself in the body.
                "token_auth_method": None if self.client_secret else "client_secret_post",
            },
        }
        return {"openid_connect": {"APPS": [application] if self.issuer else []}}


def read_oidc(env: Environment) -> OidcSettings:
    return OidcSettings(
        issuer=_read_issuer(env.text("GYMWEB_OIDC_ISSUER", default="")),
        client_id=env.text("GYMWEB_OIDC_CLIENT_ID", default=""),
        client_secret=env.text("GYMWEB_OIDC_CLIENT_SECRET", default=""),
        name=env.text("GYMWEB_OIDC_NAME", default="single sign-on"),
        scopes=env.texts("GYMWEB_OIDC_SCOPES", default=["openid", "profile", "email"]),
        groups_claim=env.text("GYMWEB_OIDC_GROUPS_CLAIM", default="groups"),
        roles=_read_roles(env.text("GYMWEB_OIDC_ROLES", default="")),
        session_hours=env.whole("GYMWEB_OIDC_SESSION_HOURS", default=12, least=1, most=14 * 24),
        key_days=env.whole("GYMWEB_OIDC_KEY_DAYS", default=30, least=0, most=3650),
    )


def _read_issuer(given: str) -> str:
    try:
        parts = urlsplit(given)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    is_url = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
    if given and (not is_url or "@" in parts.netloc):
        raise SettingRefused(
            "GYMWEB_OIDC_ISSUER is not the URL of an OpenID Connect issuer. Give it exactly as the provider's "
            "discovery document names it, for example https://login.example.org/realms/team."
        )
    return given


def _read_roles(text: str) -> dict[str, str]:
    """Parse `{"ml-admins": "admin", "ml-team": "engineer"}`. The order counts: the first group decides."""
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SettingRefused(f"GYMWEB_OIDC_ROLES is not JSON: {error}") from None
    if not isinstance(given, dict) or not all(isinstance(role, str) for role in given.values()):
        raise SettingRefused(
            'GYMWEB_OIDC_ROLES must be an object of groups and roles, such as {"ml-team": "engineer"}.'
        )
    return given
