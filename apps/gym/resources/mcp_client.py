"""A connection to an MCP server with the official package: over guarded HTTP, or to a process started here."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import msgspec

from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundReply, OutboundTimedOut, OutboundTooLarge
from apps.gym.calls.outbound_policy import FRAMING, OutboundRefused
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import EnvironmentFault, TimedOut
from apps.gym.redaction.shortening import cut, cut_body
from apps.gym.resources.mcp_process import ProcessStreams
from apps.gym.resources.protocol import ToolOutput, failed_call, output_with_images
from apps.gym.traces.items import Tool, dump_json, encode_json

if TYPE_CHECKING:
    from mcp.client.client import Client

MAX_TOOL_OUTPUT = 4 * 1024 * 1024
"""Maximum bytes of a tool's output, more than any policy model reads. A larger output is a tool error."""
_MAX_REPLY = 16 * 1024 * 1024
_MAX_PAGES = 50
_CLOSE_SECONDS = 8.0
"""Seconds to close a connection, longer than the package takes to end an unresponsive process."""
_MAX_NAME = 64
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that is started as a process.

    Its environment variables are `environment` plus PATH, HOME and similar ones.
    """

    words: list[str]
    environment: dict[str, str] = {}


class Trouble:
    """Transport errors, because the package reports only that the connection was closed.

    `count` counts all errors; `problem` and `refusal` belong to the newest request.
    """

    def __init__(self) -> None:
        self.count = 0
        self.problem: OutboundFailed | OutboundRefused | None = None
        self.refusal: OutboundReply | None = None
        self.last_words: Callable[[], str] = str
        self.ending = ""

    def note_ending(self, why: str) -> None:
        self.count += 1
        self.ending = why

    def note(self, problem: OutboundFailed | OutboundRefused | None, refusal: OutboundReply | None) -> None:
        self.count += problem is not None or refusal is not None
        self.problem, self.refusal = problem, refusal

    def explain(self, error: BaseException) -> str:
        if self.problem is not None:
            return str(self.problem)
        if self.refusal is not None:
            text = cut_body(self.refusal.body, 500)
            return f"it returned {self.refusal.status}{f': {text}' if text else ''}"
        if self.ending:
            return self.ending
        said = self.last_words()
        return f"{_root(error)}{f'; it said: {said}' if said else ''}"

    @property
    def is_lasting(self) -> bool:
        refused = self.refusal is not None and self.refusal.status in (400, 401, 403, 404, 405, 410)
        return isinstance(self.problem, OutboundRefused) or refused


@contextlib.asynccontextmanager
async def open_over_http(
    outbound: Outbound,
    url: str,
    trouble: Trouble,
    *,
    headers: Mapping[str, str],
    call_timeout: float,
    connect_timeout: float,
) -> "AsyncIterator[Client]":
    """Connect over Streamable HTTP. Every request is guarded, and limited in time and size."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    class Guarded(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "GET":
                # Reject the stream of unsolicited messages: no attempt needs it, and it never ends.
                return httpx2.Response(405, request=request)
            try:
                reply = await outbound.request(
                    request.method,
                    str(request.url),
                    body=await request.aread(),
                    headers={name: value for name, value in request.headers.items() if name.lower() not in _UNSENT},
                    timeout=call_timeout,
                    connect_timeout=connect_timeout,
                    max_bytes=_MAX_REPLY,
                )
            except OutboundTooLarge as error:
                trouble.note(error, None)
                # Raising would close the whole connection.
                return httpx2.Response(413, request=request)
            except (OutboundFailed, OutboundRefused) as error:
                trouble.note(error, None)
                raise
            trouble.note(None, reply if reply.status >= 400 else None)
            return httpx2.Response(
                reply.status,
                headers=dict(reply.headers),
                content=reply.body,
                request=request,
                extensions={"memory": reply.memory},
            )

    async with (
        httpx2.AsyncClient(transport=Guarded(), headers=dict(headers), timeout=call_timeout) as http,
        Client(streamable_http_client(url, http_client=http), read_timeout_seconds=call_timeout, cache=None) as client,
    ):
        yield client


_UNSENT = FRAMING | {"accept-encoding", "user-agent"}
"""Headers that the HTTP client sets itself."""


@contextlib.asynccontextmanager
async def open_process(command: Command, trouble: Trouble, *, call_timeout: float) -> "AsyncIterator[Client]":
    """Start a process that ends with the connection.

    Of this process's environment it gets only PATH, HOME and similar variables.
    """
    from mcp.client.client import Client
    from mcp.client.stdio import get_default_environment

    environment = {**get_default_environment(), **command.environment}
    streams = ProcessStreams(command.words, environment, trouble.note_ending)
    trouble.last_words = streams.last_words
    try:
        async with Client(streams.open(), read_timeout_seconds=call_timeout, cache=None) as client:
            yield client
    except Exception as error:
        told = trouble.explain(error)
        trouble.last_words = str
        raise ConnectionError(told) from error


class McpConnection:
    """A connection held open by its own task, because the package requires that one task enters and leaves it.

    `opening` opens the client and records errors in `trouble`.
    """

    def __init__(
        self,
        opening: "Callable[[Trouble], contextlib.AbstractAsyncContextManager[Client]]",
        *,
        name: str,
        call_timeout: float,
        open_timeout: float,
    ) -> None:
        self.name = name
        self._opening = opening
        self._call_timeout = call_timeout
        self._open_timeout = open_timeout
        self._trouble = Trouble()
        self._leave = asyncio.Event()
        self._client: Client | None = None
        self._names: dict[str, str] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def protocol(self) -> str:
        return self._client.protocol_version if self._client else ""

    async def open(self) -> None:
        """Open the connection. Raises EnvironmentFault or TimedOut."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(opened))
        try:
            async with asyncio.timeout(self._open_timeout):
                await asyncio.shield(opened)
        except TimeoutError:
            self._give_up()
            # Stop its process before raising the time-out, because the caller may end the loop at once.
            await self.close()
            raise TimedOut(f"{self.name}: no MCP connection within {self._open_timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up()
            raise
        except Exception as error:
            raise self._fault(error) from error

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._opening(self._trouble) as client:
                _accept_invalid_results(client)
                self._client = client
                if not opened.done():
                    opened.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            if opened.done() or self._leave.is_set():
                return  # the running call reports the error; no other code waits for this task
            if isinstance(error, Exception):
                opened.set_exception(error)
            else:
                opened.cancel()
        finally:
            self._client = None

    def _give_up(self) -> None:
        self._leave.set()
        if self._task is not None:
            self._task.cancel()

    async def list_tools(self) -> list[Tool]:
        """Return the tools, with names that are valid for all model endpoints. Raises EnvironmentFault or TimedOut.

        Servers are asked before each model call: some change their tools without declaring it, and over HTTP their
        notifications do not arrive. Listed again, a tool keeps its name. A tool that is listed twice counts once,
        because some servers send the same page again and again.
        """
        from mcp.shared.exceptions import MCPError

        tools: dict[str, Tool] = {}
        names = dict(self._names or {})
        before = {known: name for name, known in names.items()}
        cursors: list[str | None] = [None]
        while len(cursors) <= _MAX_PAGES:
            try:
                page = await self._ask(methodcaller("list_tools", cursor=cursors[-1]))
            except MCPError as error:
                raise self._fault(error) from error
            for tool in page.tools:
                if tool.name in tools:
                    continue
                name = before.get(tool.name) or usual_name(tool.name, names)
                names[name] = tool.name
                tools[tool.name] = {
                    "type": "function",
                    "name": name,
                    "description": tool.description or tool.title or "",
                    "parameters": tool.input_schema or {"type": "object", "properties": {}},
                    "strict": False,
                }
            if not page.next_cursor or page.next_cursor in cursors:
                break
            cursors.append(page.next_cursor)
        self._names = names
        return list(tools.values())

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool. An error of the tool is an output. Raises EnvironmentFault if the server is unreachable."""
        from mcp.shared.exceptions import MCPError

        try:
            if name not in (self._names or {}):
                # Only its list tells the server's own name of the tool, and the tools that it added since.
                await self.list_tools()
            known = (self._names or {}).get(name)
            if known is None:
                return failed_call(f"there is no tool named {cut(name, 100)!r}", "unknown_tool")
            result = await self._ask(lambda client: client.call_tool(known, arguments))
        except TimedOut:
            return failed_call(f"the tool gave no result within {self._call_timeout:g} s", "timeout")
        except MCPError as error:
            return failed_call(error.error.message, f"mcp_{error.error.code}")
        except EnvironmentFault:
            if isinstance(self._trouble.problem, OutboundTooLarge):
                return too_large(self._trouble.problem.limit)
            raise
        return _read_output(result)

    async def _ask(self, ask: "Callable[[Client], Any]") -> Any:
        """Send one request. Raises MCPError for an error that the server returns."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        client = self._client
        if client is None:
            raise EnvironmentFault(f"{self.name}: the MCP connection is closed: {self._trouble.explain(EOFError())}")
        before = self._trouble.count
        try:
            with TimeLimit(self._call_timeout):
                return await ask(client)
        except TimeoutError:
            raise TimedOut(f"{self.name}: no reply over MCP within {self._call_timeout:g} s") from None
        except MCPError as error:
            if error.error.code == REQUEST_TIMEOUT or isinstance(self._trouble.problem, OutboundTimedOut):
                raise TimedOut(f"{self.name}: no reply over MCP within {self._call_timeout:g} s") from None
            if self._trouble.count > before or error.error.code == CONNECTION_CLOSED:
                raise self._fault(error) from error
            raise
        except (EnvironmentFault, asyncio.CancelledError):
            raise
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: BaseException) -> EnvironmentFault:
        fault = EnvironmentFault(f"{self.name}: {self._trouble.explain(error)}")
        return fault.permanent() if self._trouble.is_lasting else fault

    async def close(self) -> None:
        """Close the connection without raising. A server that does not respond is abandoned after its time limit."""
        self._leave.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
        if not done:
            self._task.cancel()


def usual_name(name: str, taken: Mapping[str, str]) -> str:
    """Return a name in characters that every endpoint accepts, with a number if it is already taken."""
    usual = _UNUSUAL.sub("_", name)[:_MAX_NAME] or "tool"
    number = 2
    while usual in taken:
        tail = f"_{number}"
        usual = _UNUSUAL.sub("_", name)[: _MAX_NAME - len(tail)] + tail
        number += 1
    return usual


def _accept_invalid_results(client: "Client") -> None:
    """Mark a result that breaks its tool's output schema as an error. The package raises, and drops the result."""
    from mcp_types import TextContent

    validate = client.session.validate_tool_result

    async def mark_invalid(name: str, result: Any) -> None:
        try:
            await validate(name, result)
        except RuntimeError as error:
            result.is_error = True
            result.content.append(TextContent(text=cut(str(error).partition("\n")[0], 500)))

    client.session.validate_tool_result = mark_invalid  # type: ignore[method-assign]


def _read_output(result: Any) -> ToolOutput:
    failed = "tool_error" if result.is_error else ""
    images = [part.data for part in result.content if part.type == "image"]
    text = "" if images else _text_of(result)
    if len(text) + sum(map(len, images)) > MAX_TOOL_OUTPUT:
        return too_large(MAX_TOOL_OUTPUT)
    return (
        output_with_images(list(map(_part_of, result.content)), failed)
        if images
        else ToolOutput(text=text, error=failed)
    )


def _part_of(part: Any) -> dict[str, Any]:
    if part.type == "image":
        return {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}"}
    return {"type": "input_text", "text": _text_of_part(part)}


def _text_of_part(part: Any) -> str:
    return str(part.text) if part.type == "text" else dump_json(_outline(part))


def _text_of(result: Any) -> str:
    """Return text for the model: text content unchanged, an outline of other content, or else the structured result."""
    parts = [_text_of_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return encode_json(result.structured_content).decode()
    return "\n".join(parts)


def _outline(part: Any) -> dict[str, Any]:
    """Return non-text content without its bytes."""
    outline: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    resource = outline.get("resource")
    for holder in (outline, resource if isinstance(resource, dict) else {}):
        for key in ("data", "blob"):
            if isinstance(holder.get(key), str):
                holder[key] = f"left out: {len(holder[key]):,} characters"
    return outline


def too_large(limit: int) -> ToolOutput:
    return failed_call(f"the tool's result is larger than {limit:,} bytes", "too_large")


def _root(error: BaseException) -> str:
    """Return the message of the first exception in a group, as task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
