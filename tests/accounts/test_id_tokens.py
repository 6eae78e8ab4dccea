"""ID tokens of another issuer, client, key or time are refused."""

import base64
import hashlib
import hmac
import json
import time

import pytest
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from apps.accounts.single_sign_on.id_tokens import verify_id_token
from tests.accounts.oidc_server import CLIENT_ID, CLIENT_SECRET, KEY, public_keys, sign

ISSUER = "https://login.example.org"


def claims(**changes):
    now = int(time.time())
    given = {"iss": ISSUER, "aud": CLIENT_ID, "sub": "s", "nonce": "n", "iat": now, "exp": now + 60, **changes}
    return {name: value for name, value in given.items() if value is not None}


def verify(token):
    return verify_id_token(token, keys=public_keys(), issuer=ISSUER, client_id=CLIENT_ID)


def unsigned(given):
    parts = [{"alg": "none", "kid": "one"}, given]
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts) + "."


def signed_with_public_key():
    """The attack that takes the public key as a shared secret. PyJWT refuses to make such a token, so by hand."""

    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = unsigned(claims()).rpartition(".")[0].split(".")[1]
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    mac = hmac.new(pem, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_a_valid_token_gives_its_claims():
    assert verify(sign(claims()))["sub"] == "s"
    assert verify(sign(claims(aud=[CLIENT_ID, "other"], azp=CLIENT_ID)))["sub"] == "s"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": f"{ISSUER}/"},
        {"aud": "other"},
        {"aud": [CLIENT_ID, "other"]},
        {"azp": "other"},
        {"exp": int(time.time()) - 3600},
        {"iat": int(time.time()) + 3600},
        *({name: None} for name in ("iss", "aud", "sub", "nonce", "iat", "exp")),
    ],
    ids=lambda changes: "-".join(f"{name}-{'missing' if changes[name] is None else 'wrong'}" for name in changes),
)
def test_wrong_claims_are_refused(changes):
    with pytest.raises(OAuth2Error):
        verify(sign(claims(**changes)))


@pytest.mark.parametrize(
    "token",
    [
        unsigned(claims()),
        signed_with_public_key(),
        sign(claims(), CLIENT_SECRET, "HS256"),
        sign(claims(), rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        sign(claims(), kid="other"),
        sign(claims())[:-8] + "AAAAAAAA",
        "no token",
        "None",
        "",
    ],
    ids=["unsigned", "public-key", "client-secret", "other-key", "unknown-key", "changed", "no-token", "none", "empty"],
)
def test_other_signatures_are_refused(token):
    with pytest.raises(OAuth2Error):
        verify(token)
