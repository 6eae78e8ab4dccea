"""Items, tools and a tool choice of a Responses object with everything that the types of the `openai` package require.

What a trace holds stays as it came; only the object that is made of it is completed.
"""

from typing import Any

from apps.gym.traces.item_repair import mend_item
from apps.gym.traces.items import Item, Tool, item_type

_STATUSES = ("in_progress", "completed", "incomplete")
_CHOICES = ("auto", "none", "required")
_TEXTS = ("text", "input_text")
_ANNOTATIONS = {
    "file_citation": {"file_id": str, "filename": str, "index": int},
    "url_citation": {"start_index": int, "end_index": int, "title": str, "url": str},
    "container_file_citation": {
        "container_id": str,
        "start_index": int,
        "end_index": int,
        "file_id": str,
        "filename": str,
    },
    "file_path": {"file_id": str, "index": int},
}
_OF_A_CALL = {"namespace": str, "caller": dict}
_LOGPROB = {"token": str, "logprob": int | float, "bytes": list, "top_logprobs": list}


def complete_item(item: Item, number: int) -> Item:
    """The item with every field that clients of the Responses API rely on, itself if it has them all."""
    try:
        item = mend_item(item, str(number))
    except ValueError:
        return item  # of no type that anybody knows
    kind = item_type(item)
    if kind == "function_call_output":
        return _complete_output(item, number)
    if kind == "function_call":
        odd = {key for key, wanted in _OF_A_CALL.items() if not isinstance(item.get(key), wanted | None)}
        return {key: value for key, value in item.items() if key not in odd} if odd else item
    if kind == "reasoning":
        return _complete_reasoning(item, number)
    if kind == "message" and item.get("role") == "assistant":
        return _complete_message(item, number)
    return item


def complete_tools(tools: list[Tool]) -> list[Tool]:
    """Flat tools, also where a task wrote them as Chat Completions has them."""
    return [_complete_tool(tool) for tool in tools]


def complete_choice(choice: Any) -> Any:
    """A tool choice of the Responses API; what is none there says "auto", as leaving it out does."""
    if isinstance(choice, dict):
        nested = choice.get("function")
        if choice.get("type") == "function" and isinstance(nested, dict):
            choice = {"type": "function", "name": nested.get("name")}
        if choice.get("type") == "function":
            return choice if isinstance(choice.get("name"), str) else "auto"
        return choice if isinstance(choice.get("type"), str) else "auto"
    return choice if choice in _CHOICES else "auto"


def _complete_tool(tool: Tool) -> Tool:
    nested = tool.get("function")
    if isinstance(nested, dict):
        return {**nested, "type": "function"}
    return tool if "type" in tool or "name" not in tool else {"type": "function", **tool}


def _complete_output(item: Item, number: int) -> Item:
    has_id, has_status = isinstance(item.get("id"), str), item.get("status") in _STATUSES
    return item if has_id and has_status else {**item, **_missing(item, f"fco_{number}")}


def _missing(item: Item, name: str) -> Item:
    """An id and a status, as far as there is none that could be kept."""
    return {
        "id": item["id"] if isinstance(item.get("id"), str) else name,
        "status": item["status"] if item.get("status") in _STATUSES else "completed",
    }


def _complete_reasoning(item: Item, number: int) -> Item:
    parts = {"summary": _retype(item.get("summary") or [], "summary_text")}
    if item.get("content") is not None:
        parts["content"] = _retype(item["content"], "reasoning_text")
    if "id" in item and all(parts[key] is item.get(key) for key in parts):
        return item
    return {"id": f"rs_{number}", **item, **parts}


def _retype(parts: list[Any], kind: str) -> list[Any]:
    if all(part.get("type") == kind for part in parts):
        return parts
    return [{**part, "type": kind} for part in parts if isinstance(part.get("text"), str)]


def _complete_message(item: Item, number: int) -> Item:
    content = item["content"]
    given = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    parts = [_complete_part(part) for part in given]
    is_whole = all(part is was for part, was in zip(parts, given, strict=True))
    if is_whole and given is content and "id" in item and "status" in item:
        return item
    return {"id": f"msg_{number}", "status": "completed", **item, "content": parts}


def _complete_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "refusal" or not isinstance(part.get("text"), str):
        return part
    annotations, logprobs = part.get("annotations"), part.get("logprobs")
    kept = [one for one in annotations or [] if _is_annotation(one)]
    has_odd_logprobs = bool(logprobs) and not all(_has(one, _LOGPROB) for one in logprobs or [])
    if part.get("type") not in _TEXTS and annotations is not None and len(kept) == len(annotations):
        return {**part, "logprobs": None} if has_odd_logprobs else part
    whole = {**part, "type": "output_text", "annotations": kept}
    return {**whole, "logprobs": None} if has_odd_logprobs else whole


def _is_annotation(given: dict[str, Any]) -> bool:
    fields = _ANNOTATIONS.get(str(given.get("type")))
    return fields is not None and _has(given, fields)


def _has(given: dict[str, Any], fields: dict[str, Any]) -> bool:
    return all(isinstance(given.get(name), kind) for name, kind in fields.items())
