"""Settings of single sign-on with OpenID Connect, and of django-allauth, which speaks the protocol."""

import hashlib
import json
from typing import Any
from urllib.parse import urlsplit

from gymweb.environment_variables import Environment, SettingRefused

_APP = "allauth.socialaccount.providers.openid_connect"
ALLAUTH_APPS = ["allauth", "allauth.account", "allauth.socialaccount", _APP]


def read_oidc(env: Environment) -> dict[str, Any]:
    """Return the settings. Without an issuer, single sign-on is off. gymweb/checks.py checks their combination."""
    issuer = _read_issuer(env.text("GYMWEB_OIDC_ISSUER", default=""))
    secret = env.text("GYMWEB_OIDC_CLIENT_SECRET", default="")
    client_id = env.text("GYMWEB_OIDC_CLIENT_ID", default="")
    # Accounts belong to one issuer: the same subject of another issuer is another person.
    provider_id = f"oidc-{hashlib.sha256(issuer.encode()).hexdigest()[:16]}" if issuer else ""
    name = env.text("GYMWEB_OIDC_NAME", default="single sign-on")
    application = {
        "provider_id": provider_id,
        "name": name,
        "client_id": client_id,
        "secret": secret,
        "settings": {
            "server_url": f"{issuer.rstrip('/')}/.well-known/openid-configuration",
            "oauth_pkce_enabled": True,
            "scope": env.texts("GYMWEB_OIDC_SCOPES", default=["openid", "profile", "email"]),
            # A client without a secret names itself in the body.
            "token_auth_method": None if secret else "client_secret_post",
        },
    }
    return {
        "OIDC_ISSUER": issuer,
        "OIDC_PROVIDER_ID": provider_id,
        "OIDC_NAME": name,
        "OIDC_CLIENT_ID": client_id,
        "OIDC_GROUPS_CLAIM": env.text("GYMWEB_OIDC_GROUPS_CLAIM", default="groups"),
        "OIDC_ROLES": _read_roles(env.text("GYMWEB_OIDC_ROLES", default="")),
        "OIDC_SESSION_HOURS": env.whole("GYMWEB_OIDC_SESSION_HOURS", default=12, least=1, most=14 * 24),
        "SOCIALACCOUNT_ADAPTER": "apps.accounts.single_sign_on.oidc_protocol.ProviderAdapter",
        "SOCIALACCOUNT_PROVIDERS": {
            "openid_connect": {
                "provider_class": "apps.accounts.single_sign_on.oidc_protocol.IdentityProvider",
                "APPS": [application] if issuer else [],
            }
        },
    }


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
        raise SettingRefused('GYMWEB_OIDC_ROLES must be an object of groups and roles, such as {"ml-team": "engineer"}.')
    return given
