"""Send requests to a policy model over GymWeb's own HTTP client, to one of its servers."""

import copy
import json
import zlib
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import orjson

from apps.gym.calls.outbound import Outbound, OutboundReply
from apps.gym.calls.refusals import reveal_error
from apps.gym.errors import PolicyError

MAX_REPLY = 64 * 1024 * 1024
"""Maximum bytes of a reply, enough for token IDs and logprobs."""


class Sender(Protocol):
    """Sends bodies to an endpoint. `servers` are its base URLs."""

    servers: list[str]

    def send(self, body: dict[str, Any], session: str, tries: int) -> Awaitable[OutboundReply]:
        """Send a body and return the reply with any status, that of an error in its body included.

        `tries` is the number of this try, from 1.

        Raises OutboundFailed, OutboundTimedOut, OutboundRefused, or PolicyError for a body that is not JSON.
        """
        ...

    async def get(self, path: str, *, server: int, at_root: bool = False) -> OutboundReply:
        """Return the reply of one server at `path` below its base URL, or below that URL without /v1 if `at_root`.

        Raises like `send`.
        """
        ...


class PlainSender:
    """Posts to `path` under one of several base URLs.

    `call_timeout` and `connect_timeout` are in seconds.

    A session stays with one server, so that each turn hits its prefix cache. A retry of a call goes to the next server.
    """

    def __init__(
        self,
        outbound: Outbound,
        *,
        base_urls: Sequence[str],
        path: str,
        headers: Mapping[str, str],
        call_timeout: float = 120.0,
        connect_timeout: float = 10.0,
    ) -> None:
        self._outbound = outbound
        self.servers = [base_url.rstrip("/") for base_url in base_urls]
        self._urls = [server + path for server in self.servers]
        self._headers = {"Content-Type": "application/json", **headers}
        self._headers_beside_session = {name: value for name, value in self._headers.items() if name != "X-Session-ID"}
        self._call_timeout = call_timeout
        self._connect_timeout = connect_timeout

    def __repr__(self) -> str:
        return ", ".join(self._urls)

    def send(self, body: dict[str, Any], session: str, tries: int) -> Awaitable[OutboundReply]:
        return self._outbound.request(
            "POST",
            self._url(session, tries),
            body=partial(_encode, body),
            headers=self._headers_beside_session if session else self._headers,
            session=session,
            timeout=self._call_timeout,
            connect_timeout=self._connect_timeout,
            max_bytes=MAX_REPLY,
            revise=reveal_error,
        )

    async def get(self, path: str, *, server: int, at_root: bool = False) -> OutboundReply:
        base_url = self.servers[server]
        return await self._outbound.request(
            "GET",
            (base_url.removesuffix("/v1") if at_root else base_url) + path,
            headers={name: value for name, value in self._headers.items() if name != "Content-Type"},
            timeout=self._call_timeout,
            connect_timeout=self._connect_timeout,
        )

    def at_root(self, path: str) -> "PlainSender":
        sender = copy.copy(self)
        sender._urls = [server.removesuffix("/v1") + path for server in self.servers]
        return sender

    def _url(self, session: str, tries: int) -> str:
        if len(self._urls) == 1:
            return self._urls[0]
        return self._urls[(zlib.crc32(session.encode()) + tries - 1) % len(self._urls)]


def _encode(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (orjson.JSONEncodeError, TypeError):
        pass
    try:
        # Slower, but writes integers of any size.
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError(f"The conversation cannot be sent as JSON: {error}").permanent() from None
