"""Verify ID tokens (OpenID Connect Core 1.0, section 3.1.3.7)."""

from typing import Any

import jwt
import requests
from allauth.socialaccount.providers.oauth2.client import OAuth2Error

# Signatures with a key pair. Symmetric ones and `none` are refused: the client secret is no signing key.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_LEEWAY_SECONDS = 60


def verify_id_token(token: str, *, keys: dict[str, Any], issuer: str, client_id: str) -> dict[str, Any]:
    """Return the claims of an ID token. Raise OAuth2Error if signature, issuer, audience or times are wrong.

    `keys` is the provider's JWK Set. The caller compares the nonce.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            _find_key(token, keys),
            algorithms=ALGORITHMS,
            audience=client_id,
            issuer=issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat", "nonce"]},
        )
    except jwt.PyJWTError as error:
        raise OAuth2Error(f"The ID token is invalid: {error}") from error
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    # A token for several clients must name this one as the client that requested it.
    if claims.get("azp", client_id) != client_id or (len(audiences) > 1 and "azp" not in claims):
        raise OAuth2Error("The ID token was issued to another client.")
    return claims


def _find_key(token: str, keys: dict[str, Any]) -> jwt.PyJWK:
    """Return the signing key that the token names; without a name, the only one. Raise PyJWTError."""
    header = jwt.get_unverified_header(token)
    usable = [one for one in jwt.PyJWKSet.from_dict(keys).keys if one.public_key_use in {None, "sig"}]
    if "kid" in header:
        usable = [one for one in usable if one.key_id == header["kid"]]
    if len(usable) != 1:
        raise jwt.InvalidTokenError("no key of the provider matches")
    return usable[0]


def read_json(session: requests.Session, url: str, **options: Any) -> dict[str, Any]:
    """Return the JSON object at a URL of the provider. Raise OAuth2Error and RequestException."""
    response = session.get(url, **options)
    response.raise_for_status()
    found = response.json()
    if not isinstance(found, dict):
        raise OAuth2Error(f"{url} is not a JSON object.")
    return found
