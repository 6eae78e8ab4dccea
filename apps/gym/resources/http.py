"""Resource servers over HTTP: NeMo Gym's protocol, one session per attempt, its cookies carried from call to call."""

import asyncio
import time
from typing import Any
from urllib.parse import quote

import orjson

from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.items import Item, TaskRow, Tool, dump_json
from apps.gym.observing import Observer, Outcome, ignore
from apps.gym.outbound import (
    Outbound,
    OutboundFailed,
    OutboundRefused,
    OutboundReply,
    OutboundTimedOut,
    OutboundTooLarge,
)
from apps.gym.resources.openapi import GYMNASIUM_ROUTES, PROTOCOL_ROUTES, read_tools
from apps.gym.resources.protocol import Probe, ToolOutput
from apps.gym.resources.scoring import encode_body, read_reward
from apps.gym.retrying import Pauses, TryAgain, call_with_retries, parse_retry_after
from apps.gym.rewards import Reward

_JSON = {"Content-Type": "application/json"}
_PROBE_TIMEOUT = 10.0
_MAX_TOOL_NAME = 256
_MIB = 1024 * 1024
MAX_TOOL_OUTPUT = 4 * _MIB
"""More bytes than any policy model reads; a larger output is a tool error."""
MAX_REPLY = 16 * _MIB


class ReplyTooLarge(EnvironmentFault):
    """The reply is beyond what is read of it."""


class HttpSession:
    """One attempt at a resource server: the newest value of each of its cookies goes with every call."""

    __slots__ = ("_cookies", "_row", "_server", "_tool_names")

    def __init__(self, server: "HttpResourceServer", row: TaskRow) -> None:
        self._server = server
        self._row = row
        self._cookies: dict[str, str] = {}
        self._tool_names: frozenset[str] | None = None

    async def seed(self) -> None:
        reply = await self._post("seed_session", encode_body(self._row), self._server.call_timeout, patient=True)
        if not _is_success(reply):
            problem = EnvironmentFault(f"{self._server.name}: POST /seed_session answered {_describe(reply)}")
            raise problem if _may_pass(reply) else problem.lasting()

    async def list_tools(self) -> list[Tool]:
        """None of its own: over this protocol the task row declares the tools."""
        return []

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        if not self._is_tool(name):
            text = dump_json({"error": f"there is no tool named {name[:100]!r}"})
            return ToolOutput(text=text, error="unknown_tool")
        path = quote(name, safe="", errors="replace")
        try:
            reply = await self._post(path, encode_body(arguments), self._server.call_timeout, max_bytes=MAX_TOOL_OUTPUT)
        except ReplyTooLarge:
            text = dump_json({"error": f"the tool's result is larger than {MAX_TOOL_OUTPUT:,} bytes"})
            return ToolOutput(text=text, error="too_large")
        except TimedOut:
            seconds = f"{self._server.call_timeout:g} s"
            return ToolOutput(text=dump_json({"error": f"the tool gave no result within {seconds}"}), error="timeout")
        error = "" if _is_success(reply) else f"http_{reply.status}"
        return ToolOutput(text=reply.body.decode("utf-8", "replace"), error=error)

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """Nothing: a reply without tool calls ends the attempt on servers of this protocol."""
        return None

    async def verify(self, response: dict[str, Any]) -> Reward:
        server = self._server
        if not server.verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        # The task row and the response, no more: servers pass the body on as keyword arguments beside what they
        # computed, so a row that already brings a `reward` would break them.
        row = {key: value for key, value in self._row.items() if key != "reward"}
        body = encode_body({**row, "response": response})
        # Servers echo the row and the response, so the bound grows with what was sent.
        most = MAX_REPLY + 2 * len(body)
        try:
            reply = await self._post("verify", body, server.verify_timeout, patient=True, max_bytes=most)
        except ReplyTooLarge as error:
            raise VerifierError(str(error)) from error
        if not _is_success(reply):
            problem = VerifierError(f"{server.name}: POST /verify answered {_describe(reply)}")
            raise problem if _may_pass(reply) else problem.lasting()
        return read_reward(reply.body, self._row, source=server.name)

    async def close(self) -> None:
        """Nothing to say: the protocol leaves forgetting a session to the server."""

    def _is_tool(self, name: str) -> bool:
        if not name or len(name) > _MAX_TOOL_NAME or "/" in name or "\\" in name or ".." in name or name == ".":
            return False
        if name in PROTOCOL_ROUTES:
            return False
        return name not in GYMNASIUM_ROUTES or name in self._declared_tools()

    def _declared_tools(self) -> frozenset[str]:
        if self._tool_names is None:
            tools = self._row["responses_create_params"].get("tools") or []
            self._tool_names = frozenset(str(tool.get("name")) for tool in tools if isinstance(tool, dict))
        return self._tool_names

    async def _post(
        self, path: str, body: bytes, seconds: float, *, patient: bool = False, max_bytes: int = MAX_REPLY
    ) -> OutboundReply:
        reply = await self._server.post(
            path, body, cookies=self._cookies, seconds=seconds, patient=patient, max_bytes=max_bytes
        )
        if reply.cookies:
            self._cookies = {**self._cookies, **reply.cookies}
        return reply


class HttpResourceServer:
    """One resource server. `call_timeout` and `verify_timeout` are seconds; `max_tries` bounds each call."""

    def __init__(
        self,
        outbound: Outbound,
        *,
        name: str,
        base_url: str,
        call_timeout: float,
        verify_timeout: float,
        max_tries: int,
        connect_timeout: float = 10.0,
        verifies: bool = True,
        pauses: Pauses | None = None,
        observe: Observer = ignore,
    ) -> None:
        self.name = name
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self.verifies = verifies
        self._outbound = outbound
        self._base_url = base_url.rstrip("/")
        self._max_tries = max_tries
        self._connect_timeout = connect_timeout
        self._observe = observe
        self._pauses = pauses or Pauses()

    async def seed_session(self, row: TaskRow, *, seed: int) -> HttpSession:
        """Raises EnvironmentFault, or TimedOut. The protocol has no place for `seed`: a row names its own."""
        session = HttpSession(self, row)
        await session.seed()
        return session

    async def post(
        self, path: str, body: bytes, *, cookies: dict[str, str], seconds: float, patient: bool, max_bytes: int
    ) -> OutboundReply:
        """One call, tried again while the server cannot be reached and, when `patient`, on 429 and 5xx.

        A time-out is not tried again: the server may be at work on it still. Raises EnvironmentFault (ReplyTooLarge is
        one) or TimedOut.
        """
        url = f"{self._base_url}/{path}"

        async def send() -> OutboundReply:
            try:
                reply = await self._outbound.request(
                    "POST",
                    url,
                    body=body,
                    headers=_JSON,
                    cookies=cookies,
                    timeout=seconds,
                    connect_timeout=self._connect_timeout,
                    max_bytes=max_bytes,
                )
            except OutboundTimedOut as error:
                self._observe("timed_out", str(error))
                raise TimedOut(f"{self.name}: {error}") from error
            except OutboundTooLarge as error:
                raise ReplyTooLarge(f"{self.name}: {error}") from error
            except OutboundFailed as error:
                self._observe("unreachable", str(error))
                raise TryAgain(EnvironmentFault(f"{self.name}: {error}")) from error
            except OutboundRefused as error:
                raise EnvironmentFault(f"{self.name}: {error}").lasting() from error
            if patient and (reply.status == 429 or reply.status >= 500):
                self._observe(_outcome(reply), f"{path}: {_describe(reply)}")
                raise TryAgain(_Unwell(reply), after=parse_retry_after(reply.headers.get("Retry-After")))
            self._observe("ok")
            return reply

        try:
            reply, _ = await call_with_retries(send, max_tries=self._max_tries, pauses=self._pauses)
        except _Unwell as unwell:
            return unwell.reply
        return reply

    async def probe(self) -> Probe:
        """A health check: `GET /`, then the tools that `GET /openapi.json` names, where there is one. Never raises."""
        started = time.perf_counter()
        try:
            reply = await self._get("/")
            latency = time.perf_counter() - started
            tools = await self._discover()
        except (OutboundFailed, OutboundRefused) as error:
            return Probe(healthy=False, message=str(error), latency=time.perf_counter() - started)
        # Some servers have no page at "/", yet their schema shows that they are there.
        if not _is_success(reply) and tools is None:
            return Probe(healthy=False, message=f"GET / answered {_describe(reply)}", latency=latency)
        told = "no OpenAPI document" if tools is None else _count(tools)
        return Probe(healthy=True, message=f"reachable; {told}", latency=latency, tools=tools or [])

    async def _discover(self) -> list[Tool] | None:
        try:
            reply = await self._get("/openapi.json")
        except OutboundFailed:
            return None
        if not _is_success(reply):
            return None
        try:
            # Off the loop: a document may be megabytes.
            return await asyncio.to_thread(lambda: read_tools(orjson.loads(reply.body)))
        except orjson.JSONDecodeError:
            return None

    async def _get(self, path: str) -> OutboundReply:
        return await self._outbound.request(
            "GET", self._base_url + path, timeout=min(self.call_timeout, _PROBE_TIMEOUT)
        )


class _Unwell(Exception):
    """A reply of 429 or 5xx, kept so that after the last try its caller can say what it said."""

    def __init__(self, reply: OutboundReply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def _is_success(reply: OutboundReply) -> bool:
    return 200 <= reply.status < 300


def _outcome(reply: OutboundReply) -> Outcome:
    """How a reply of 429 or 5xx speaks of the server. Frameworks answer 500 where the code for one task raised: a few
    such tasks in a row must not hold back all others."""
    if reply.status == 429:
        return "throttled"
    return "server_error" if reply.status in (502, 503, 504) else "failed"


def _may_pass(reply: OutboundReply) -> bool:
    """Whether what kept the server from success may be gone the next time."""
    return reply.status == 429 or reply.status >= 500


def _describe(reply: OutboundReply) -> str:
    text = reply.body[:2000].decode("utf-8", "replace").strip()
    return f"{reply.status}: {text}" if text else str(reply.status)


def _count(tools: list[Tool]) -> str:
    return f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'} in its OpenAPI document"
