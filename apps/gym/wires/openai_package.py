"""Send requests through the `openai` package, which handles the addresses and credentials of OpenAI and Azure OpenAI.

The package builds the request; apps.gym.calls.outbound sends it like all others, and returns the reply unchanged.
"""

from collections.abc import Awaitable, Mapping
from typing import Any

import httpx2
import openai

from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import FRAMING, OutboundRefused
from apps.gym.calls.refusals import reveal_error
from apps.gym.wires.sending import MAX_REPLY

_UNSENT = FRAMING | {"accept-encoding"}
"""Headers that the HTTP client sets itself."""

_ENCODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that describe the encoding of a reply in transit."""


class OutboundTransport(httpx2.AsyncBaseTransport):
    """The package's HTTP transport, which sends through Outbound."""

    def __init__(self, outbound: Outbound, *, call_timeout: float, connect_timeout: float) -> None:
        self._outbound = outbound
        self._call_timeout = call_timeout
        self._connect_timeout = connect_timeout

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._outbound.request(
            request.method,
            str(request.url),
            body=await request.aread(),
            # The package sends empty headers for an unset organization or project.
            headers={name: value for name, value in request.headers.items() if value and name.lower() not in _UNSENT},
            timeout=self._call_timeout,
            connect_timeout=self._connect_timeout,
            max_bytes=MAX_REPLY,
        )
        # The body is already decoded; with these headers it would be decoded again.
        headers = {name: value for name, value in reply.headers.items() if name.lower() not in _ENCODED}
        extensions = {"memory": reply.memory}
        return httpx2.Response(
            reply.status, headers=headers, content=reply.body, request=request, extensions=extensions
        )


class PackageSender:
    """Posts to `path` through a client of the package that never retries: the policy does, within its limits."""

    def __init__(self, client: openai.AsyncOpenAI, *, path: str) -> None:
        self._client = client
        self._path = path
        self.servers = [str(client.base_url).rstrip("/")]

    def __repr__(self) -> str:
        return self.servers[0] + self._path

    async def send(self, body: dict[str, Any], session: str, tries: int) -> OutboundReply:
        return reveal_error(await _reply(self._client.post(self._path, cast_to=httpx2.Response, body=body)))

    async def get(self, path: str, *, server: int, at_root: bool = False) -> OutboundReply:
        return await _reply(self._client.get(path, cast_to=httpx2.Response))


async def _reply(asked: Awaitable[httpx2.Response]) -> OutboundReply:
    """Return a reply with any status. Errors of Outbound are raised instead of the package's less specific ones."""
    try:
        response = await asked
    except openai.APIStatusError as refusal:
        response = refusal.response
    except openai.APIConnectionError as wrapped:
        if isinstance(wrapped.__cause__, OutboundFailed | OutboundRefused):
            raise wrapped.__cause__ from None
        raise OutboundFailed(str(wrapped)) from wrapped
    return OutboundReply(
        response.status_code, response.headers, response.content, {}, response.extensions.get("memory")
    )


def open_openai(
    outbound: Outbound,
    *,
    base_url: str,
    api_key: str,
    call_timeout: float,
    connect_timeout: float,
    headers: Mapping[str, str] | None = None,
) -> openai.AsyncOpenAI:
    """Return a client of OpenAI. It reads nothing from the environment, only the given settings."""
    transport = OutboundTransport(outbound, call_timeout=call_timeout, connect_timeout=connect_timeout)
    return openai.AsyncOpenAI(
        api_key=api_key,
        admin_api_key="",
        base_url=base_url,
        organization="",
        project="",
        webhook_secret="",
        max_retries=0,
        timeout=call_timeout,
        default_headers=headers,
        http_client=httpx2.AsyncClient(transport=transport),
    )


def open_azure(
    outbound: Outbound,
    *,
    endpoint: str,
    api_version: str,
    api_key: str,
    is_token: bool,
    call_timeout: float,
    connect_timeout: float,
    headers: Mapping[str, str] | None = None,
) -> openai.AsyncAzureOpenAI:
    """Return a client of Azure OpenAI.

    The model's name is that of the deployment. If `is_token`, the key is a bearer token.
    """
    transport = OutboundTransport(outbound, call_timeout=call_timeout, connect_timeout=connect_timeout)
    return openai.AsyncAzureOpenAI(
        azure_endpoint=endpoint,
        api_version=api_version,
        api_key=None if is_token else api_key,
        azure_ad_token=api_key if is_token else None,
        admin_api_key="",
        organization="",
        webhook_secret="",
        max_retries=0,
        timeout=call_timeout,
        default_headers=headers,
        http_client=httpx2.AsyncClient(transport=transport),
    )
