"""Namespaces of tools in OpenAI's Responses, for example the tools of an MCP server. Models get functions.

The function of tool `add` in namespace `mcp__sums` is `mcp__sums__add`. Clients get and send both names separately.
"""

from typing import Any

from apps.gym.traces.items import Item, Tool, as_object, item_type


def read_namespaces(tools: list[Tool]) -> tuple[list[Tool], dict[str, dict[str, str]]]:
    """Return the tools with functions for namespaces, and `namespace` and `name` by the name of each function."""
    flat, names = list[Tool](), dict[str, dict[str, str]]()
    for tool in tools:
        if tool.get("type") != "namespace" or not isinstance(tool.get("tools"), list):
            flat.append(tool)
            continue
        for one in filter(None, map(as_object, tool["tools"])):
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
