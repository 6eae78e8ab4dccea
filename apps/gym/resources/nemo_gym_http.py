"""Resource servers over HTTP: NeMo Gym's protocol, with one session and its cookies per attempt."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from apps.gym.calls.outbound import OutboundReply
from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.image_data import data_url, find_kind
from apps.gym.resources.mcp_client import MAX_TOOL_OUTPUT, McpConnection, open_over_http, too_large
from apps.gym.resources.protocol import (
    Probe,
    ResourceServer,
    ReverifyMode,
    ToolOutput,
    failed_call,
    load_arguments,
    output_with_images,
    read_parts,
)
from apps.gym.resources.server_calls import (
    MAX_REPLY,
    Caller,
    CallerSession,
    ReplyTooLarge,
    check_success,
    is_success,
    read_object,
)
from apps.gym.resources.server_survey import (
    GYMNASIUM_ROUTES,
    PROTOCOL_ROUTES,
    Survey,
    ask_reverify_mode,
    probe_server,
    survey_server,
)
from apps.gym.resources.verify_bodies import read_reward
from apps.gym.rewards import Reward
from apps.gym.tasks.parameters import find_item_problem
from apps.gym.traces.items import Item, TaskRow, Tool, encode_json, parse_json

_MAX_TOOL_NAME = 256
TOOL_ERROR = "X-GymWeb-Tool-Error"
"""Header in which GymWeb's own servers name the error of a tool."""
_NAME_OF_ERROR = re.compile(r"[a-z][a-z0-9_]{0,63}")


class HttpSession(CallerSession):
    """One attempt at a resource server. The newest value of each cookie is sent with every call."""

    def __init__(self, server: "HttpResourceServer", row: TaskRow) -> None:
        super().__init__(server.caller, row)
        self._server = server
        self._tools: list[Tool] | None = None
        self._tool_names: frozenset[str] | None = None
        self._exposed: dict[str, Any] = {}
        self._mcp: McpConnection | None = None
        self._is_closed = False

    async def seed(self) -> None:
        seconds = self._server.call_timeout
        reply = await self._post("seed_session", encode_json(self._row), seconds=seconds, patient=True)
        check_success(reply, f"{self._server.name}: POST /seed_session")
        given = read_object(reply)
        self._closing_routes = ["close"] if given.get("supports_explicit_close") is True else []
        exposed = given.get("mcp")
        self._exposed = exposed if isinstance(exposed, dict) else {}
        self.opening = self._read_opening(given.get("obs", []))

    def _read_opening(self, given: object) -> list[Item]:
        """Return the first observation, a list of messages as NeMo Gym's Aviary servers send it."""
        if not isinstance(given, list) or any(not isinstance(item, dict) or find_item_problem(item) for item in given):
            told = f"{self._server.name}: `obs` in the reply of /seed_session must be a list of messages."
            raise EnvironmentFault(told).permanent()
        return given

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the server declares, unless the row has a list of tools; an empty list means none.

        If the server exposes its tools over MCP, they are listed and called there.
        """
        if self._mcp is not None:
            return await self._mcp.list_tools()
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

    def read_arguments(self, given: object) -> Any:
        """Return any JSON value, as NeMo Gym's agents send it: the server answers 422 to values that are no object."""
        if self._mcp is not None or not isinstance(given, str) or not given.strip():
            return super().read_arguments(given)
        try:
            return parse_json(given)
        except json.JSONDecodeError:
            return load_arguments(given)  # also accepts NaN

    async def call_tool(self, name: str, arguments: Any) -> ToolOutput:
        if self._mcp is not None:
            return await self._mcp.call_tool(name, arguments)
        if not self._is_tool(name):
            return await super().call_tool(name, arguments)
        path = quote(name, safe="", errors="replace")
        try:
            reply = await self._post(
                path, encode_json(arguments), seconds=self._server.call_timeout, max_bytes=MAX_TOOL_OUTPUT
            )
        except ReplyTooLarge:
            return too_large(MAX_TOOL_OUTPUT)
        except TimedOut:
            return failed_call(f"the tool gave no result within {self._server.call_timeout:g} s", "timeout")
        return _read_output(reply)

    async def verify(self, response: dict[str, Any]) -> Reward:
        server = self._server
        # Only the task row and the response: servers pass the body on as keyword arguments together with what they
        # computed, so a `reward` in the row would break them.
        row = {key: value for key, value in self._row.items() if key != "reward"}
        body = encode_json({**row, "response": response})
        # Servers echo the row and the response, so the limit grows with the request.
        most = MAX_REPLY + 2 * len(body)
        try:
            reply = await self._post("verify", body, seconds=server.verify_timeout, patient=True, max_bytes=most)
        except ReplyTooLarge as error:
            raise VerifierError(str(error)).permanent() from error
        check_success(reply, f"{server.name}: POST /verify", VerifierError)
        return read_reward(reply.body, self._row, source=server.name)

    async def close(self) -> None:
        if self._mcp is not None:
            await self._mcp.close()
        if not self._is_closed:
            self._is_closed = True
            self._closing_routes = list(dict.fromkeys([*await self._server.closing_routes(), *self._closing_routes]))
        await super().close()

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


class HttpResourceServer(ResourceServer):
    """The resource server that `caller` calls.

    `verify_timeout` is in seconds.

    `survey` is the stored survey; without one, the server is queried when needed.
    """

    def __init__(self, caller: Caller, *, verify_timeout: float, survey: Survey | None = None) -> None:
        self.name = caller.name
        self.call_timeout = caller.call_timeout
        self.verify_timeout = verify_timeout
        self.caller = caller
        self._survey = survey
        self._asking = asyncio.Lock()

    async def closing_routes(self) -> list[str]:
        """Return the routes that close a session; none if the server cannot be asked."""
        with suppress(EnvironmentFault):
            return (await self._ask()).closing_routes
        return []

    async def seed_session(self, row: TaskRow, *, seed: int) -> HttpSession:
        """Open a session.

        Raises EnvironmentFault or TimedOut. The protocol has no field for `seed`: a row has its own.
        """
        session = HttpSession(self, row)
        try:
            await session.seed()
        except BaseException:
            if session.cookies:
                await session.close()
            raise
        return session

    async def list_tools(self) -> list[Tool]:
        """Return the tools in the server's OpenAPI document. Raises EnvironmentFault."""
        return (await self._ask()).tools

    async def _ask(self) -> Survey:
        """Return the stored survey, else fetch it once. Raises EnvironmentFault."""
        async with self._asking:
            if self._survey is None:
                self._survey = await survey_server(self.caller)
        return self._survey

    async def open_mcp(self, exposed: dict[str, Any]) -> McpConnection:
        """Connect to the session's tools over MCP, as described in the reply to /seed_session.

        Raises EnvironmentFault, TimedOut.
        """
        headers, path = exposed.get("headers"), exposed.get("url_path", "/mcp")
        told = headers if isinstance(headers, dict) else {}
        if not isinstance(path, str) or not path.startswith("/"):
            raise EnvironmentFault(f"{self.name}: /seed_session returned an invalid MCP path: {path!r}").permanent()
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


def _read_output(reply: OutboundReply) -> ToolOutput:
    """Return the output of a tool: an image, a list of texts and images, or any text."""
    error = _tool_error(reply)
    if kind := find_kind(reply.body):
        return output_with_images([{"type": "input_image", "image_url": data_url(kind, reply.body)}], error)
    text = reply.body.decode("utf-8", "replace")
    parts = read_parts(text)
    return output_with_images(parts, error) if parts else ToolOutput(text=text, error=error)


def _tool_error(reply: OutboundReply) -> str:
    """Return the error name given by GymWeb's own servers, else one from the status, or an empty text."""
    if is_success(reply):
        return ""
    said = reply.headers.get(TOOL_ERROR, "")
    return said if _NAME_OF_ERROR.fullmatch(said) else f"http_{reply.status}"
