"""Map tool names of a reply to those of the environment, by removing prefixes that clients add."""

import re
from collections.abc import Collection
from typing import Any

from apps.gym.traces.events import TraceUnion
from apps.gym.traces.items import Item, TaskRow
from apps.gym.traces.responses import ResponseParts, assemble_response

_SEPARATORS = ("__", ".", ":", "/")
_MCP = re.compile(r"mcp__[^_](?:[^_]|_(?!_))*__(?=.)")


def strip_tool_prefix(name: str, known: Collection[str]) -> str:
    """Return `get_weather` for `mcp__weather__get_weather`, `functions.get_weather` or `weather/get_weather`.

    A known name is unchanged. If the name ends with known names, the longest is used. Otherwise only the
    prefix of MCP clients is removed.
    """
    if name in known:
        return name
    ends = [one for one in known if one and name.endswith(tuple(mark + one for mark in _SEPARATORS))]
    if ends:
        return max(ends, key=len)
    return _MCP.sub("", name, count=1) if name.startswith("mcp__") else name


def strip_call_prefixes(items: list[Item], known: Collection[str]) -> list[Item]:
    """Return the items, with the names of function calls as the environment knows them."""
    return [_bare(item, known) if item.get("type") == "function_call" else item for item in items]


def _bare(call: Item, known: Collection[str]) -> Item:
    name: Any = call.get("name")
    if not isinstance(name, str):
        return call
    bare = strip_tool_prefix(name, known)
    return call if bare == name else {**call, "name": bare}


def assemble_unprefixed_response(
    attempt: list[TraceUnion] | ResponseParts, row: TaskRow, known: Collection[str], stop_reason: str = ""
) -> dict[str, Any]:
    """Return the response for an environment or verifier, with the tool names of the task."""
    response = assemble_response(attempt, row, stop_reason=stop_reason)
    return {**response, "output": strip_call_prefixes(response["output"], known)}
