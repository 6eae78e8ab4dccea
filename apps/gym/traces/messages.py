"""Traces as chat messages: the shape that trainers with Hugging Face chat templates load.

One assistant message is one turn of the policy model: its reasoning, its text and all its tool calls. In an attempt
the turns are the ModelCall events, never what happens to stand side by side; only a prompt (few-shot examples, earlier
turns of a task), which has no such events, is split where the other side speaks.

`developer` becomes `system`, since few chat templates know the former; the system messages that open a prompt become
one, since many templates accept a single one and only in front.
"""

import json
import math
from typing import Any, Literal

from apps.gym.loadable import is_loaded_exactly
from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, TraceUnion
from apps.gym.traces.items import BETWEEN_TEXTS, Item, TaskRow, Tool, is_by_model, item_type, join_parts

Message = dict[str, Any]

ArgumentsAs = Literal["object", "exact_object", "text", "any_text"]
"""How the arguments of a call are given: as an object, as one whose numbers `datasets` loads as they are (see
loadable.py), as the text that the model wrote, or as that text although it is no object. Text is kept byte for byte;
arguments that were no text to begin with are written out."""

_TEXT_PARTS = {"input_text", "output_text", "text", "reasoning_text", "summary_text"}
_REFUSED_PARTS = {
    "input_image": "image_content",
    "image_url": "image_content",
    "input_file": "file_content",
    "file": "file_content",
    "input_audio": "audio_content",
}


class Dropped(Exception):
    """This row cannot become what was asked for; `reason` is a stable snake_case code that manifests count."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def prompt_messages(events: list[TraceUnion], *, arguments: ArgumentsAs = "object") -> list[Message]:
    """What the attempt started from. Raises Dropped."""
    return item_messages(_prompt_items(events), arguments=arguments)


def item_messages(items: list[Item], *, arguments: ArgumentsAs = "object") -> list[Message]:
    """A prompt's items, which carry no turn boundaries. Raises Dropped."""
    names: dict[str, str] = {}
    return _join_opening_system(_item_messages(items, names, arguments))


def completion_messages(
    events: list[TraceUnion], *, arguments: ArgumentsAs = "object", silent_turns: bool = False
) -> list[Message]:
    """Everything after the prompt, up to the model's last turn: what follows it teaches nothing. Raises Dropped.

    A turn that only thinks is no example to follow, and drops the row as one without any turn does; `silent_turns`
    keeps both, where what went wrong is to be seen as well.
    """
    calls = (item for item in _prompt_items(events) if item_type(item) == "function_call")
    names = {_text_field(item, "call_id"): _text_field(item, "name") for item in calls}
    messages: list[Message] = []
    for event in events:
        if isinstance(event, Prompt):
            continue
        if isinstance(event, ModelCall):
            if event.items:
                messages.append(_assistant_message(event.items, names, arguments, silent_turns=silent_turns))
        else:
            messages.extend(_item_messages(event.new_items(), names, arguments))
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    if not messages and not silent_turns:
        raise Dropped("no_assistant_turn")
    return messages


def offered_tools(events: list[TraceUnion], row: TaskRow) -> list[Tool]:
    """The flat tools that the model was offered: those of the session, which already prefers the task's own."""
    session = next((event for event in events if isinstance(event, SessionOpened)), None)
    return (session.tools if session else []) or row["responses_create_params"].get("tools") or []


def nested_tools(tools: list[Tool]) -> list[dict[str, Any]]:
    """Flat Responses tools as Chat Completions tools. Raises Dropped for tools that are no functions."""
    return [_nested_tool(tool) for tool in tools]


def _nested_tool(tool: Tool) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool.get("function"), dict) else tool
    if tool.get("type", "function") != "function" or not function or not function.get("name"):
        raise Dropped("tool_not_function")
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function.get("description") or "",
            "parameters": _without_nulls(function.get("parameters") or {"type": "object", "properties": {}}),
        },
    }


_VALUE_KEYWORDS = {"const", "default", "enum", "examples", "example"}
"""They hold values, of which null is one, and which are no schemas."""
_NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
"""They hold schemas by names, which are no keywords."""


def _without_nulls(schema: Any) -> Any:
    """A JSON schema without the keywords that are null and say nothing by it: Arrow types a column of nulls as null."""
    if isinstance(schema, list):
        return [_without_nulls(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _VALUE_KEYWORDS:
            kept[key] = value
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            kept[key] = {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
        elif value is not None:
            kept[key] = _without_nulls(value)
    return kept


def _prompt_items(events: list[TraceUnion]) -> list[Item]:
    return next((event.items for event in events if isinstance(event, Prompt)), [])


def _item_messages(items: list[Item], names: dict[str, str], arguments: ArgumentsAs) -> list[Message]:
    """Items that carry no turn boundaries; `names` learns the tool of each call id."""
    messages: list[Message] = []
    turn: list[Item] = []
    for item in items:
        if is_by_model(item):
            turn.append(item)
            continue
        if turn:
            messages.append(_assistant_message(turn, names, arguments))
            turn = []
        messages.append(_other_message(item, names))
    if turn:
        messages.append(_assistant_message(turn, names, arguments))
    return messages


def _other_message(item: Item, names: dict[str, str]) -> Message:
    kind = item_type(item)
    if kind == "function_call_output":
        call_id = _text_field(item, "call_id")
        if call_id not in names:
            raise Dropped("orphan_tool_output")
        return {
            "role": "tool",
            "tool_call_id": call_id,
            "content": flat_text(item.get("output")),
            "name": names[call_id],
        }
    if kind != "message":
        raise Dropped("unknown_item")
    role = "system" if item.get("role") == "developer" else item.get("role")
    if role not in {"system", "user"}:
        raise Dropped("unknown_role")
    return {"role": role, "content": flat_text(item.get("content"))}


def _assistant_message(
    items: list[Item], names: dict[str, str], arguments: ArgumentsAs, *, silent_turns: bool = False
) -> Message:
    """`content` is "" where the turn says nothing, for templates that crash on null; absent keys are left out."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for item in items:
        kind = item_type(item)
        if kind == "function_call":
            call_id, name = _text_field(item, "call_id"), _text_field(item, "name")
            names[call_id] = name
            function = {"name": name, "arguments": _arguments(item.get("arguments"), arguments)}
            calls.append({"id": call_id, "type": "function", "function": function})
        elif kind == "reasoning":
            told = flat_text(item.get("content"), by_model=True) or flat_text(item.get("summary"), by_model=True)
            thoughts.append(told)
        elif is_by_model(item):
            texts.append(flat_text(item.get("content"), by_model=True))
        else:
            raise Dropped("unknown_item")
    content = BETWEEN_TEXTS.join(filter(None, texts))
    if not content.strip() and not calls and not silent_turns:
        raise Dropped("empty_turn")
    reasoning = BETWEEN_TEXTS.join(filter(None, thoughts))
    return {
        "role": "assistant",
        "content": content,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _text_field(item: Item, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise Dropped("malformed_item")
    return value


def _arguments(given: object, wanted: ArgumentsAs) -> dict[str, Any] | str:
    """An empty string means no arguments, as the loop reads it."""
    if wanted == "any_text" and isinstance(given, str) and given.strip():
        return given
    parsed = given
    if isinstance(given, str):
        try:
            # Not orjson: it reads integers of more than 64 bits as floats, which are other arguments.
            floats = _exact_float if wanted == "exact_object" else _finite_float
            parsed = json.loads(given, parse_constant=_refuse_constant, parse_float=floats) if given.strip() else {}
        except (ValueError, RecursionError):
            raise Dropped("malformed_arguments") from None
    if not isinstance(parsed, dict):
        raise Dropped("malformed_arguments")
    if wanted in {"object", "exact_object"}:
        return parsed
    return given if isinstance(given, str) and given.strip() else json.dumps(parsed, ensure_ascii=False)


def _finite_float(text: str) -> float:
    """1e400 is JSON, but would be read as infinity and written as null, or as no JSON at all."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is larger than any number that can be written")
    return number


def _exact_float(text: str) -> float:
    number = _finite_float(text)
    if not is_loaded_exactly(number):
        raise Dropped("inexact_numbers")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def flat_text(content: object, *, by_model: bool = False) -> str:
    """Content parts as one text, see `join_parts`. Raises Dropped for parts that are not text, naming what they are."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Dropped("unknown_content")
    return join_parts(map(_part_text, content), by_model=by_model)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise Dropped("unknown_content")
    if kind in _TEXT_PARTS:
        return str(part.get("text") or "")
    if kind == "refusal":
        return str(part.get("refusal") or "")
    raise Dropped(_REFUSED_PARTS.get(kind, "unknown_content"))


def _join_opening_system(messages: list[Message]) -> list[Message]:
    opening = 0
    while opening < len(messages) and messages[opening]["role"] == "system":
        opening += 1
    if opening < 2:
        return messages
    texts = (message["content"] for message in messages[:opening])
    return [{"role": "system", "content": "\n\n".join(filter(None, texts))}, *messages[opening:]]
