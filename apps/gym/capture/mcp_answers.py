"""The environment's tools for captured agents: an MCP server at the URL of the attempt.

MCP over streamable HTTP (https://modelcontextprotocol.io/specification/2025-06-18/basic/transports), without sessions:
each request gets a JSON answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from apps.gym.image_data import DATA_URL
from apps.gym.traces.events import ToolResult
from apps.gym.traces.items import Item, Tool, call_arguments, function_calls

Message = dict[str, Any]
ListTools = Callable[[], Awaitable[list[Tool]]]
CallTool = Callable[[str, dict[str, Any]], Awaitable[ToolResult]]

PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Supported versions of the protocol, newest first."""
_PARSE_ERROR, _INVALID_REQUEST, _UNKNOWN_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602


class PendingCalls:
    """Finds the call of the model that a tool call of the agent carries out. MCP does not say which one."""

    def __init__(self) -> None:
        self._pending: list[tuple[str, str, bytes]] = []  # call id, name, arguments
        self._unmatched = 0

    def add(self, items: list[Item]) -> None:
        """Note the calls of a reply."""
        for call in function_calls(items):
            key = (str(call.get("call_id", "")), str(call.get("name", "")), _digest(call_arguments(call) or {}))
            self._pending.append(key)

    def take(
        self, name: str, arguments: dict[str, Any], known: frozenset[str], strip_prefix: Callable[..., str]
    ) -> str:
        """Return the id of the oldest open call of this tool with these arguments, or a new id."""
        wanted = strip_prefix(name, known), _digest(arguments)
        for place, (call_id, called, given) in enumerate(self._pending):
            if (strip_prefix(called, known), given) == wanted:
                del self._pending[place]
                return call_id
        self._unmatched += 1
        return f"mcp_{self._unmatched}"


async def answer_mcp(body: bytes, list_tools: ListTools, call_tool: CallTool) -> tuple[int, Message | None]:
    """Return status and answer of one request or notification."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 400, _error(None, _PARSE_ERROR, "The body is not JSON.")
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        is_response = isinstance(message, dict) and ("result" in message or "error" in message)
        return (202, None) if is_response else (400, _error(None, _INVALID_REQUEST, "Send one JSON-RPC request."))
    if "id" not in message:
        return 202, None
    params = message.get("params") if isinstance(message.get("params"), dict) else {}
    return 200, await _answer(message["id"], message["method"], params or {}, list_tools, call_tool)


async def _answer(number: Any, method: str, params: Message, list_tools: ListTools, call_tool: CallTool) -> Message:
    if method == "initialize":
        asked = params.get("protocolVersion")
        result: Message = {
            "protocolVersion": asked if asked in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "gymweb", "version": "1"},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        result = {"tools": [_describe(tool) for tool in await list_tools()]}
    elif method == "tools/call":
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return _error(number, _INVALID_PARAMS, "Give the name of a tool, and its arguments as an object.")
        called = await call_tool(name, arguments)
        result = {"content": _content(called), "isError": bool(called.error)}
    else:
        return _error(number, _UNKNOWN_METHOD, f"There is no method {method}.")
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _content(called: ToolResult) -> list[Message]:
    if isinstance(called.output, str):
        return [{"type": "text", "text": called.output}]
    content: list[Message] = []
    for part in called.output:
        if part["type"] == "input_image":
            found = DATA_URL.fullmatch(part["image_url"])
            assert found
            content.append({"type": "image", "data": found["data"], "mimeType": found["kind"]})
        else:
            content.append({"type": "text", "text": part["text"]})
    return content


def _describe(tool: Tool) -> Message:
    return {
        "name": str(tool.get("name", "")),
        "description": tool.get("description") or "",
        "inputSchema": tool.get("parameters") or {"type": "object", "properties": {}},
    }


def _error(number: Any, code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _digest(arguments: dict[str, Any]) -> bytes:
    return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
