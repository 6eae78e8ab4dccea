"""Resource servers over HTTP: NeMo Gym's protocol, one session per attempt, its cookies carried from call to call."""

import asyncio
import re
from typing import Any
from urllib.parse import quote

from apps.gym.calls.outbound import OutboundReply
from apps.gym.errors import EnvironmentFault, GymError, TimedOut, VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.resources.mcp_client import McpConnection, open_over_http
from apps.gym.resources.openapi import GYMNASIUM_ROUTES, PROTOCOL_ROUTES
from apps.gym.resources.protocol import Probe, ReverifyMode, ToolOutput
from apps.gym.resources.server_calls import (
    MAX_REPLY,
    Caller,
    ReplyTooLarge,
    describe,
    is_success,
    may_pass,
    read_object,
)
from apps.gym.resources.server_survey import Survey, ask_reverify_mode, probe_server, survey_server
from apps.gym.resources.verify_bodies import encode_body, read_reward
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json

_MAX_TOOL_NAME = 256
MAX_TOOL_OUTPUT = 4 * 1024 * 1024
"""More bytes than any policy model reads; a larger output is a tool error."""
TOOL_ERROR = "X-GymWeb-Tool-Error"
"""In which header our own servers say what went wrong with a tool."""
_NAME_OF_ERROR = re.compile(r"[a-z][a-z0-9_]{0,63}")
CLOSE_SECONDS = 5.0
"""For saying goodbye to a session, which must not hold up its seat."""


class HttpSession:
    """One attempt at a resource server: the newest value of each of its cookies goes with every call."""

    __slots__ = ("_closes", "_cookies", "_exposed", "_mcp", "_row", "_server", "_tool_names", "_tools")

    def __init__(self, server: "HttpResourceServer", row: TaskRow) -> None:
        self._server = server
        self._row = row
        self._cookies: dict[str, str] = {}
        self._tools: list[Tool] | None = None
        self._tool_names: frozenset[str] | None = None
        self._closes = False
        self._exposed: dict[str, Any] = {}
        self._mcp: McpConnection | None = None

    async def seed(self) -> None:
        reply = await self._post("seed_session", encode_body(self._row), self._server.call_timeout, patient=True)
        if not is_success(reply):
            problem = EnvironmentFault(f"{self._server.name}: POST /seed_session answered {describe(reply)}")
            raise problem if may_pass(reply) else problem.lasting()
        given = read_object(reply)
        self._closes = given.get("supports_explicit_close") is True
        exposed = given.get("mcp")
        self._exposed = exposed if isinstance(exposed, dict) else {}

    async def list_tools(self) -> list[Tool]:
        """Those that the server names, unless the row has a list of its own: an empty one means none.

        A server that exposes them over MCP names them there, and takes their calls there.
        """
        if self._tools is None:
            if isinstance(self._row["responses_create_params"].get("tools"), list):
                self._tools = []
            elif self._exposed:
                self._mcp = await self._server.open_mcp(self._exposed)
                self._tools = await self._mcp.list_tools()
            else:
                self._tools = await self._server.list_tools()
            self._tool_names = None
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        if self._mcp is not None:
            return await self._mcp.call_tool(name, arguments)
        if not self._is_tool(name):
            text = dump_json({"error": f"there is no tool named {cut(name, 100)!r}"})
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
        return ToolOutput(text=reply.body.decode("utf-8", "replace"), error=_tool_error(reply))

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
            raise VerifierError(str(error)).lasting() from error
        if not is_success(reply):
            problem = VerifierError(f"{server.name}: POST /verify answered {describe(reply)}")
            raise problem if may_pass(reply) else problem.lasting()
        return read_reward(reply.body, self._row, source=server.name)

    async def close(self) -> None:
        """Say so where the server wants to hear it; others forget a session by themselves."""
        if self._mcp is not None:
            await self._mcp.close()
        if not (self._closes or self._server.closes):
            return
        try:
            await self._server.caller.post(
                "close", b"{}", cookies=self._cookies, seconds=CLOSE_SECONDS, patient=False, once=True
            )
        except GymError:
            return  # What the attempt came to stands, and the server's own time limit ends the session.

    def _is_tool(self, name: str) -> bool:
        if not name or len(name) > _MAX_TOOL_NAME or "/" in name or "\\" in name or ".." in name or name == ".":
            return False
        if name in PROTOCOL_ROUTES:
            return False
        return name not in GYMNASIUM_ROUTES or name in self._declared_tools()

    def _declared_tools(self) -> frozenset[str]:
        if self._tool_names is None:
            tools = [*(self._row["responses_create_params"].get("tools") or []), *(self._tools or [])]
            self._tool_names = frozenset(str(tool.get("name")) for tool in tools if isinstance(tool, dict))
        return self._tool_names

    async def _post(
        self, path: str, body: bytes, seconds: float, *, patient: bool = False, max_bytes: int = MAX_REPLY
    ) -> OutboundReply:
        reply = await self._server.caller.post(
            path, body, cookies=self._cookies, seconds=seconds, patient=patient, max_bytes=max_bytes
        )
        if reply.cookies:
            self._cookies = {**self._cookies, **reply.cookies}
        return reply


class HttpResourceServer:
    """The resource server that `caller` calls. `verify_timeout` is seconds.

    `survey` is what is known of it already; without one it is asked when an attempt needs to know.
    """

    def __init__(
        self, caller: Caller, *, verify_timeout: float, verifies: bool = True, survey: Survey | None = None
    ) -> None:
        self.name = caller.name
        self.call_timeout = caller.call_timeout
        self.verify_timeout = verify_timeout
        self.verifies = verifies
        self.caller = caller
        self._survey = survey
        self._asking = asyncio.Lock()

    @property
    def closes(self) -> bool:
        """Whether it is known to have a route for closing sessions."""
        return self._survey is not None and self._survey.closes

    async def seed_session(self, row: TaskRow, *, seed: int) -> HttpSession:
        """Raises EnvironmentFault, or TimedOut. The protocol has no place for `seed`: a row names its own."""
        session = HttpSession(self, row)
        await session.seed()
        return session

    async def list_tools(self) -> list[Tool]:
        """The tools in its OpenAPI document, asked for once. Raises EnvironmentFault."""
        async with self._asking:
            if self._survey is None:
                self._survey = await survey_server(self.caller)
        return self._survey.tools

    async def open_mcp(self, exposed: dict[str, Any]) -> McpConnection:
        """The session's tools over MCP, where the reply to /seed_session says. Raises EnvironmentFault, TimedOut."""
        headers, path = exposed.get("headers"), exposed.get("url_path", "/mcp")
        told = headers if isinstance(headers, dict) else {}
        if not isinstance(path, str) or not path.startswith("/"):
            raise EnvironmentFault(f"{self.name}: the reply of /seed_session names no path of MCP: {path!r}").lasting()
        connection = McpConnection(
            lambda trouble: open_over_http(
                self.caller.outbound,
                self.caller.base_url + path,
                trouble,
                headers={**self.caller.headers, **{str(name): str(value) for name, value in told.items()}},
                call_timeout=self.call_timeout,
                connect_timeout=self.caller.connect_timeout,
            ),
            name=self.name,
            call_timeout=self.call_timeout,
            open_timeout=self.call_timeout + self.caller.connect_timeout,
        )
        await connection.open()
        return connection

    async def probe(self) -> Probe:
        return await probe_server(self.caller, gymnasium=False)

    async def reverify_mode(self) -> ReverifyMode:
        return await ask_reverify_mode(self.caller)


def _tool_error(reply: OutboundReply) -> str:
    """In the words of our own servers, else by its status."""
    if is_success(reply):
        return ""
    said = reply.headers.get(TOOL_ERROR, "")
    return said if _NAME_OF_ERROR.fullmatch(said) else f"http_{reply.status}"
