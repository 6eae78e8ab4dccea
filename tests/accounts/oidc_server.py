"""An OpenID Connect provider over HTTP whose tokens a test can falsify: the real one of the browser tests sends no
wrong ones."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

CLIENT_ID, CLIENT_SECRET = "gymweb", "a-secret-of-at-least-thirty-two-bytes"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ROLES = {"admins": "admin", "engineers": "engineer", "annotators": "annotator"}


def public_keys() -> dict[str, Any]:
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    return {"keys": [{**jwk, "kid": "one", "use": "sig", "alg": "RS256"}]}


def sign(claims: dict[str, Any], key: Any = KEY, algorithm: str = "RS256", kid: str = "one") -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})


class OidcServer:
    """`claims` are those of the user; the other attributes change what is sent."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.claims: dict[str, Any] = {"sub": "subject-1", "preferred_username": "ada", "groups": ["engineers"]}
        self.discovery: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.token_claims: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = sign
        self.nonce = ""
        self.token_request: dict[str, str] = {}

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "auth", "token_endpoint": "token", "userinfo_endpoint": "me"}
            addresses = {name: f"{self.issuer}/{path}" for name, path in {**names, "jwks_uri": "keys"}.items()}
            return {"issuer": self.issuer, **addresses, **self.discovery}
        if path == "/keys":
            return public_keys()
        if path == "/token":
            return {"access_token": "t", "token_type": "Bearer", "id_token": self.sign(self.id_token())}
        return {**self.claims, **self.userinfo}

    def id_token(self) -> dict[str, Any]:
        now = int(time.time())
        times = {"iat": now, "exp": now + 60}
        fixed = {"iss": self.issuer, "aud": CLIENT_ID, "sub": self.claims["sub"], "nonce": self.nonce}
        return {**fixed, **times, **self.token_claims}

    def begin(self, client: Client, query: str = "") -> dict[str, str]:
        """Start a sign-in and return the parameters that GymWeb sends to the provider."""
        sent = parse_qs(urlsplit(client.get(f"/sign-in/oidc/{query}")["Location"]).query)
        given = {name: value for name, [value] in sent.items()}
        self.nonce = given["nonce"]
        return given

    def sign_in(self, client: Client, query: str = "") -> Any:
        """Go through a whole sign-in and return the response of the callback."""
        state = self.begin(client, query)["state"]
        return client.get("/sign-in/oidc/callback/", {"state": state, "code": "c"})

    def verifies(self, challenge: str) -> bool:
        """Return True if the token request proves the challenge (RFC 7636, S256)."""
        digest = hashlib.sha256(self.token_request["code_verifier"].encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge


@contextmanager
def oidc_server(settings: Any) -> Iterator[OidcServer]:
    """A running provider, which GymWeb is set to use."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(given.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given.token_request = {name: value for name, [value] in parse_qs(sent).items()}
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    given = OidcServer(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    use_provider(settings, given.issuer)
    try:
        yield given
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use_provider(settings: Any, issuer: str, **changes: Any) -> None:
    fields = {"issuer": issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "roles": ROLES, **changes}
    settings.OIDC = replace(settings.OIDC, **fields)
    settings.SOCIALACCOUNT_PROVIDERS = settings.OIDC.allauth_providers
