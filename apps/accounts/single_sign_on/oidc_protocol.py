"""The OpenID Connect code flow with PKCE, state and nonce, by django-allauth. Imported at the first sign-in.

Only the protocol is django-allauth's. Its pages, its account linking by e-mail and its sign-up are not used: the
adapter stops its flow as soon as the user is identified.
"""

import secrets
from typing import Any

import requests
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.crypto import constant_time_compare

from apps.accounts.single_sign_on.id_tokens import read_json, verify_id_token

_LOGIN = "login"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
_LONGEST_SUBJECT = 191  # the column of django-allauth


class ProviderFailed(Exception):
    """Raised if the provider cannot be reached, refuses the sign-in, or sends an invalid reply.

    `cause` is for the audit log: it may quote the provider's reply.
    """

    def __init__(self, message: str, cause: object = "") -> None:
        super().__init__(message)
        self.cause = str(cause)


class Identified(Exception):
    """Raised to leave django-allauth's flow once the claims of the user are verified. `page` is the page to open."""

    def __init__(self, claims: dict[str, Any], page: str) -> None:
        super().__init__("identified")
        self.claims, self.page = claims, page


class IdentifiedLogin(SocialLogin):
    """The verified claims of a user."""

    def __init__(self, account: SocialAccount, claims: dict[str, Any]) -> None:
        super().__init__(account=account)
        self.claims = claims

    def lookup(self) -> None:
        """Do nothing. GymWeb finds the account itself, by issuer and subject only."""


def _require_tls(config: dict[str, Any]) -> None:
    """Raise OAuth2Error if an endpoint of an https issuer would receive secrets or send keys in the clear."""
    if not settings.OIDC.issuer.startswith("https://"):
        return
    for name in _ENDPOINTS:
        if not str(config.get(name) or "https://").startswith("https://"):
            raise OAuth2Error(f"The discovery document names a {name} without https. Correct it at the provider.")


class Protocol(OpenIDConnectOAuth2Adapter):
    """The calls to the provider."""

    @property
    def openid_config(self) -> dict[str, Any]:
        if not hasattr(self, "_openid_config"):
            config: dict[str, Any] = super().openid_config
            if config.get("issuer") != settings.OIDC.issuer:
                raise OAuth2Error("The discovery document names another issuer than GYMWEB_OIDC_ISSUER.")
            _require_tls(config)
        return self._openid_config  # type: ignore[no-any-return]

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return request.build_absolute_uri(reverse("dashboard:oidc_callback"))

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> IdentifiedLogin:
        """Verify the ID token and add the claims of the userinfo endpoint. Raise OAuth2Error."""
        config = self.openid_config
        with get_adapter().get_requests_session() as session:
            keys = read_json(session, config["jwks_uri"])
            claims = verify_id_token(
                str(kwargs["response"].get("id_token")),
                keys=keys,
                issuer=settings.OIDC.issuer,
                client_id=app.client_id,
            )
            if url := config.get("userinfo_endpoint"):
                userinfo = read_json(session, url, headers={"Authorization": f"Bearer {token.token}"})
                if userinfo.get("sub") != claims["sub"]:
                    raise OAuth2Error("The userinfo endpoint describes another user than the ID token.")
                # Signed claims win.
                claims = {**userinfo, **claims}
        if not 0 < len(claims["sub"]) <= _LONGEST_SUBJECT or not claims["sub"].isprintable():
            raise OAuth2Error("The subject of the ID token cannot be stored.")
        account = SocialAccount(provider=self.get_provider().sub_id, uid=claims["sub"])
        return IdentifiedLogin(account, claims)


class IdentityProvider(OpenIDConnectProvider):
    oauth2_adapter_class = Protocol


# django-allauth's app, which would register its own provider, is not installed.
registry.register(IdentityProvider)


class ProviderAdapter(DefaultSocialAccountAdapter):
    """Leaves django-allauth's flow where GymWeb's own begins."""

    def pre_social_login(self, request: HttpRequest, sociallogin: IdentifiedLogin) -> None:
        """Compare the nonce and raise Identified."""
        claims, state = sociallogin.claims, sociallogin.state
        if not constant_time_compare(str(claims["nonce"]), str(state.get("nonce"))):
            raise ProviderFailed(_FAILED, "The nonce of the ID token is wrong.")
        raise Identified(claims, state.get("next", ""))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        given = request.GET.get("error_description") or request.GET.get("error")
        raise ProviderFailed(_FAILED, exception or given or "The state is unknown or older than 10 minutes.")


_FAILED = "Signing in failed. Try again. If it keeps failing, ask an admin: the audit log has the reason."
_UNREACHABLE = "The identity provider cannot be reached. Try again later."


def start_sign_in(request: HttpRequest, page: str) -> HttpResponseBase:
    """Return a redirect to the provider. Raise ProviderFailed."""
    provider = get_adapter().get_provider(request, provider=settings.OIDC.provider_id)
    nonce = secrets.token_urlsafe(32)
    try:
        response: HttpResponseBase = provider.redirect(
            request, process=_LOGIN, next_url=page, auth_params={"nonce": nonce}, nonce=nonce
        )
    except (requests.RequestException, OAuth2Error, KeyError, ValueError) as error:
        raise ProviderFailed(_UNREACHABLE, error) from error
    return response


def finish_sign_in(request: HttpRequest) -> Identified:
    """Return the verified claims of the user whom the provider sent back. Raise ProviderFailed."""
    try:
        OAuth2CallbackView.adapter_view(Protocol(request, settings.OIDC.provider_id))(request)
    except Identified as identified:
        return identified
    except (KeyError, TypeError, ValueError) as error:  # a reply without the fields that the protocol requires
        raise ProviderFailed(_FAILED, repr(error)) from error
    raise ProviderFailed(_FAILED)
