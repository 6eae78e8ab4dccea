"""The Responses object of a whole attempt, for `/verify` and rollout rows."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
)
from apps.gym.traces.item_repair import mend_item
from apps.gym.traces.items import (
    Item,
    Named,
    TaskRow,
    TokenUsage,
    Tool,
    as_object,
    call_arguments,
    function_calls,
    item_type,
    last_assistant_text,
    message,
    named_calls,
    pair_results,
    unique_ids,
)

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
    """Return the item with all fields that clients of the Responses API need.

    An item that has them is returned unchanged.
    """
    if item.keys() == _OWN_OUTPUT and item["type"] == "function_call_output":
        return _complete_output(item, number)
    return item if _is_own(item) else _complete(item, number)


def _complete(item: Item, number: int) -> Item:
    try:
        item = mend_item(item, str(number))
    except ValueError:
        return item  # an unknown type
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


_OWN_OUTPUT = {"type", "call_id", "output"}
_OWN_CALL = {"type", "id", "call_id", "name", "arguments", "status"}
_OWN_MESSAGE = {"type", "id", "role", "status", "content"}


def _is_own(item: Item) -> bool:
    """Return True for a call or a text as GymWeb writes it: complete, so the check of each field can be skipped."""
    if item.keys() == _OWN_CALL:
        return item["type"] == "function_call" and {*map(type, item.values())} == {str} and item["status"] in _STATUSES
    if item.keys() != _OWN_MESSAGE or item["type"] != "message" or item["status"] not in _STATUSES:
        return False
    content = item["content"]
    return (
        type(item["id"]) is str
        and item["role"] == "assistant"
        and type(content) is list
        and len(content) == 1
        and type(content[0]) is dict
        and content[0] == {"type": "output_text", "text": content[0].get("text"), "annotations": []}
        and type(content[0]["text"]) is str
    )


def complete_tools(tools: list[Tool]) -> list[Tool]:
    """Return complete flat tools. Tools in Chat Completions format are converted."""
    return [_complete_tool(tool) for tool in tools]


def complete_choice(choice: Any) -> Any:
    """Return a valid tool choice of the Responses API; otherwise "auto", the default."""
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
    """Return an id and a status, keeping valid ones."""
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


_COUNTS = tuple(TokenUsage.__annotations__)
_INCOMPLETE = {"max_output_tokens": "max_output_tokens", "content_filter": "content_filter"}


def prompt_items(events: list[TraceUnion]) -> list[Item]:
    return next((event.items for event in events if isinstance(event, Prompt)), [])


class ResponseParts(msgspec.Struct):
    """What a response takes from the events of an attempt. `usage` has the sum of each count over all model calls.

    A running attempt collects these parts rather than its events, which need more memory.
    """

    output: list[Item] = []
    tools: list[Tool] = []
    usage: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    model: str = ""
    response_id: str = ""
    answer: str = ""
    turns: int = 0
    user_calls: list[dict[str, Any]] = []

    def add(self, event: TraceUnion) -> list[Item]:
        """Add the parts of the next event. Return the items that it adds to the conversation."""
        items = event.new_items()
        match event:
            case ModelCall():
                self.model, self.response_id = event.model, event.response_id
                self.tools = self.tools if event.tools_in is None else event.tools_in
                counts: Any = event.usage
                for name in counts:
                    self.usage[name] += counts[name]
            case Prompt():
                return items
            case SessionOpened():
                self.tools = event.tools
                # An imported rollout has no events for calls of the user model, so take them from the imported
                # response.
                kept = as_object(event.original.get("response")).get("user_calls")
                self.user_calls += kept if isinstance(kept, list) else []
            case EnvironmentTurn():
                self.turns += 1
            case JudgeCall(role="user"):
                self.user_calls += user_calls(event.items, self.turns)
            case AgentEnd():
                self.answer = event.answer
        self.output += items
        return items


def assemble_response(
    attempt: list[TraceUnion] | ResponseParts, row: TaskRow, *, stop_reason: str = ""
) -> dict[str, Any]:
    """Return one Responses object whose `output` is every item after the prompt, in order.

    `attempt` is the list of its events, or the parts collected from them.

    NeMo Gym's servers require id, created_at, model, object, output, parallel_tool_calls, tool_choice and tools. Output
    items have the required fields of the `openai` package types. Those types have none for observations of an
    environment, which are therefore user messages. `user_calls`, if there are any, has the tool calls of a simulated
    user, each with the number of environment turns before it.
    """
    params = row["responses_create_params"]
    if isinstance(attempt, ResponseParts):
        parts = attempt
    else:
        parts = ResponseParts()
        for event in attempt:
            parts.add(event)
    output, usage = parts.output, parts.usage
    if parts.answer and parts.answer != last_assistant_text(output):
        # Some external agents give their answer only in the command that ends the attempt.
        output = [*output, message("assistant", parts.answer)]
    reason = _INCOMPLETE.get(stop_reason)
    return {
        "id": parts.response_id or "resp_0",
        "created_at": 0.0,
        "model": parts.model,
        "object": "response",
        "output": [complete_item(item, number) for number, item in enumerate(output)],
        "parallel_tool_calls": bool(params.get("parallel_tool_calls", True)),
        "tool_choice": complete_choice(params.get("tool_choice")),
        "tools": complete_tools(params.get("tools") or parts.tools),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": {
            "input_tokens": usage["input_tokens"],
            "input_tokens_details": {
                "cached_tokens": usage["cached_tokens"],
                "cache_write_tokens": usage["cache_write_tokens"],
            },
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": usage["reasoning_tokens"]},
            "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        },
        **({"user_calls": parts.user_calls} if parts.user_calls else {}),
    }


def user_calls(items: list[Item], turn: int) -> list[dict[str, Any]]:
    """Return the tool calls in a reply of a simulated user. Skips arguments that are not a JSON object."""
    read = ((str(call.get("name")), call_arguments(call)) for call in function_calls(items))
    return [{"turn": turn, "name": name, "arguments": given} for name, given in read if given is not None]


def with_unique_ids(events: list[TraceUnion]) -> list[TraceUnion]:
    """Return a line whose calls have unique ids in their turn, and whose results have the ids of their calls."""
    if all(not isinstance(event, ModelCall) or _has_unique_ids(event.items) for event in events):
        return events  # Fast path: the usual line.
    made: list[TraceUnion] = []
    calls: list[Named] = []
    ids: list[str] = []
    for event in events:
        if isinstance(event, ModelCall):
            calls = named_calls(event.items)
            ids = unique_ids([call_id for call_id, _ in calls])
            new, calls = iter([*ids]), calls if ids != [call_id for call_id, _ in calls] else []
        if calls and isinstance(event, ToolResult):
            made.append(replace(event, call_id=_take_id(calls, ids, (event.call_id, event.name))))
        elif calls and isinstance(event, ModelCall | EnvironmentTurn):
            made.append(replace(event, items=[_with_id(one, new, calls, ids) for one in event.items]))
        else:
            made.append(event)
    return made


def _has_unique_ids(items: list[Item]) -> bool:
    ids = [call_id for call_id, _ in named_calls(items)]
    return all(ids) and len(set(ids)) == len(ids)


def _with_id(item: Item, new: Iterator[str], calls: list[Named], ids: list[str]) -> Item:
    if item_type(item) == "function_call":
        return {**item, "call_id": next(new)}
    is_result = item_type(item) == "function_call_output"
    return {**item, "call_id": _take_id(calls, ids, (str(item.get("call_id", "")), ""))} if is_result else item


def _take_id(calls: list[Named], ids: list[str], result: Named) -> str:
    """Return the new id of the call that a result answers, and remove the call."""
    for call in pair_results(calls, [result]).values():
        del calls[call]
        return ids.pop(call)
    return result[0]
