"""Items of a prompt, as far as the wire fixes them: who says a message, what kinds of items there are, and what makes a
call and its result."""

from collections.abc import Mapping
from typing import Any

ROLES = ("user", "assistant", "system", "developer")
OWN_TYPES = ("message", "function_call", "function_call_output", "reasoning")
# What the Responses API takes beside those. They are passed on as they are.
_OTHERS = (
    "apply_patch_call apply_patch_call_output code_interpreter_call compaction computer_call computer_call_output "
    "custom_tool_call custom_tool_call_output file_search_call image_generation_call item_reference local_shell_call "
    "local_shell_call_output mcp_approval_request mcp_approval_response mcp_call mcp_list_tools shell_call "
    "shell_call_output web_search_call"
)
TYPES = frozenset([*OWN_TYPES, *_OTHERS.split()])
TOOL_CHOICES = ("auto", "none", "required")

Found = tuple[str, str, str]
"""Code, place below the item, what must be."""


def find_item_problem(item: Mapping[str, Any]) -> Found | None:
    """What keeps this from being an item of a prompt, or None."""
    kind, role = item.get("type"), item.get("role")
    if not isinstance(kind, str) and not isinstance(role, str):
        return "missing", "", "has neither role nor type"
    if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
        return "unknown_type", "/type", f"must be {_any_of(OWN_TYPES)}, or another item of the Responses API"
    if kind == "function_call":
        return _text_problem(item, ("name", "call_id", "arguments"))
    if kind == "function_call_output":
        return _output_problem(item)
    return _message_problem(item) if kind in (None, "message") else None


def find_choice_problem(value: object) -> Found | None:
    """What keeps this from being a `tool_choice`, or None."""
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            return "wrong_value", "", f"must be {_any_of(TOOL_CHOICES)}, or an object that names a tool"
        return None
    if not isinstance(value, dict):
        return "wrong_type", "", "must be text or an object"
    return _text_problem(value, ("type", "name") if value.get("type") == "function" else ("type",))


def _message_problem(item: Mapping[str, Any]) -> Found | None:
    if item.get("role") not in ROLES:
        return "wrong_value", "/role", f"must be {_any_of(ROLES)}"
    content = item.get("content")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return "wrong_type", "/content", "must be text or a list of parts"
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            return "wrong_type", f"/content/{index}", "must be an object with a type"
    return None


def _output_problem(item: Mapping[str, Any]) -> Found | None:
    if not isinstance(item.get("output"), str | list):
        return "wrong_type", "/output", "must be text or a list of parts"
    return _text_problem(item, ("call_id",))


def _text_problem(holder: Mapping[str, Any], names: tuple[str, ...]) -> Found | None:
    for name in names:
        if not isinstance(holder.get(name), str):
            return "wrong_type" if name in holder else "missing", f"/{name}", "must be text"
    return None


def _any_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
