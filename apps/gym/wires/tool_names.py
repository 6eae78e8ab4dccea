"""Names of tools as their environment knows them: what stands before a name in a client's own fashion is taken off."""

import re
from collections.abc import Collection
from typing import Any

from apps.gym.traces.items import Item

_SEPARATORS = ("__", ".", ":", "/")
_MCP = re.compile(r"mcp__[^_](?:[^_]|_(?!_))*__(?=.)")


def bare_name(name: str, known: Collection[str]) -> str:
    """`mcp__weather__get_weather`, `functions.get_weather`, `weather/get_weather`: all are `get_weather`.

    A known name is itself. Of several known ones that the name ends with, the longest is meant; where none is, only the
    prefix of MCP clients is taken off.
    """
    if name in known:
        return name
    ends = [one for one in known if one and name.endswith(tuple(mark + one for mark in _SEPARATORS))]
    if ends:
        return max(ends, key=len)
    return _MCP.sub("", name, count=1) if name.startswith("mcp__") else name


def bare_call_names(items: list[Item], known: Collection[str]) -> list[Item]:
    """The items, with the names of their function calls as the environment knows them."""
    return [_bare(item, known) if item.get("type") == "function_call" else item for item in items]


def _bare(call: Item, known: Collection[str]) -> Item:
    name: Any = call.get("name")
    if not isinstance(name, str):
        return call
    bare = bare_name(name, known)
    return call if bare == name else {**call, "name": bare}
