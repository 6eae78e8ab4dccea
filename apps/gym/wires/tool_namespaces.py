"""Namespaces of tools in OpenAI's Responses, for example the tools of an MCP server. Models get functions.

The function of tool `add` in namespace `mcp__sums` is `mcp__sums__add`. Clients get and send both names separately.
"""

from typing import Any

from apps.gym.traces.items import Item, Tool, item_type

Namespaces = dict[str, dict[str, str]]
"""`namespace` and `name` of tools by the names of their functions."""


def read_namespaces(tools: list[Tool]) -> tuple[list[Tool], Namespaces]:
    """Return the tools, each namespace replaced by its functions, and the names of these functions."""
    flat: list[Tool] = []
    names: Namespaces = {}
    for tool in tools:
        inner = tool.get("tools")
        if tool.get("type") != "namespace" or not isinstance(inner, list):
            flat.append(tool)
            continue
        for one in (one for one in inner if isinstance(one, dict)):
            joined = _join(tool.get("name"), one.get("name"))
            names[joined] = {"namespace": str(tool.get("name")), "name": str(one.get("name"))}
            flat.append({**one, "name": joined})
    return flat, names


def join_names(item: Item) -> Item:
    """Return an item of a request; a call of a tool in a namespace has the name of the function."""
    if item_type(item) != "function_call" or not item.get("namespace"):
        return item
    plain = {key: value for key, value in item.items() if key != "namespace"}
    return {**plain, "name": _join(item["namespace"], item.get("name"))}


def _join(namespace: Any, name: Any) -> str:
    return f"{str(namespace).removesuffix('__')}__{name}"
