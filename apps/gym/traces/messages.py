"""Traces as chat messages: the format that trainers with Hugging Face chat templates load.

One assistant message is one turn of the policy model: its reasoning, its text and all its tool calls. Each
ModelCall event of an attempt is one turn. Only a prompt (few-shot examples, earlier turns of a task), which has no such
events, is split where the speaker changes.

`developer` becomes `system`, because few chat templates know it. The system messages that open a prompt are joined,
because many templates accept only one, at the start.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import Any, Literal

from apps.gym.loadable import is_loaded_exactly
from apps.gym.traces.events import (
    EnvironmentTurn,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    tool_offers,
)
from apps.gym.traces.items import (
    TEXT_SEPARATOR,
    Item,
    TaskRow,
    Tool,
    ToolNames,
    finite_float,
    is_by_model,
    item_type,
    join_parts,
    pair_results,
    refuse_constant,
    unique_ids,
)
from apps.gym.traces.responses import prompt_items
from apps.gym.trainability import Dropped

Message = dict[str, Any]

ArgumentsAs = Literal["object", "exact_object", "text", "any_text"]
"""Forms of call arguments: an object, an object whose numbers `datasets` loads unchanged (see loadable.py), the
original text, or the original text even if it is not an object. Text is kept byte for byte; other arguments are
serialised.
"""

AUTHOR = "author"

_TEXT_PARTS = {"input_text", "output_text", "text", "reasoning_text", "summary_text"}
_REFUSED_PARTS = {
    "input_image": "image_content",
    "image_url": "image_content",
    "input_file": "file_content",
    "file": "file_content",
    "input_audio": "audio_content",
}


def prompt_messages(
    events: list[TraceUnion], *, arguments: ArgumentsAs = "object", images: bool = False
) -> list[Message]:
    """Return the messages of the prompt. Raises Dropped.

    Messages of the model have a field AUTHOR if their author is known (apps.gym.traces.authorship).
    """
    authors = next((event.authors for event in events if isinstance(event, Prompt)), [])
    return item_messages(prompt_items(events), arguments=arguments, images=images, authors=authors)


def item_messages(
    items: list[Item], *, arguments: ArgumentsAs = "object", images: bool = False, authors: Sequence[str] = ()
) -> list[Message]:
    """Return a prompt's items, which have no turn boundaries, as messages. Raises Dropped.

    With `images`, the content of a message with images is a list of parts: `{"type": "image", "image": address}`, and
    `{"type": "text", "text": …}`. Otherwise an image raises Dropped.
    """
    names = ToolNames()
    return _join_opening_system(order_results(_item_messages(items, names, arguments, images, authors)))


def completion_messages(
    events: list[TraceUnion], *, arguments: ArgumentsAs = "object", silent_turns: bool = False, images: bool = False
) -> list[Message]:
    """Return everything after the prompt, up to the model's last turn.

    Later messages are left out, because no turn of the model follows them.

    Raises Dropped for a turn with only reasoning and for an attempt without turns, which are useless as training
    examples. `silent_turns` keeps both, for exports that also show failures. Turns that a client sent have a field
    AUTHOR, as in `prompt_messages`.
    """
    names = ToolNames()
    for item in prompt_items(events):
        names.add([item])
    messages: list[Message] = []
    for event in events:
        if isinstance(event, Prompt):
            continue
        if isinstance(event, ModelCall):
            if event.items:
                messages.append(_assistant_message(event.items, names, arguments, silent_turns=silent_turns))
        else:
            authors = event.authors if isinstance(event, EnvironmentTurn) else ()
            told = _item_messages(event.new_items(), names, arguments, images, authors)
            if isinstance(event, ToolResult) and event.name:
                told[0]["name"] = event.name
            messages.extend(told)
    messages = order_results(messages)
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    if not messages and not silent_turns:
        raise Dropped("no_assistant_turn")
    return messages


def order_results(messages: list[Message]) -> list[Message]:
    """Return messages with the results of each turn in the order of its calls, because most templates drop the ids.

    Calls of one turn with equal or empty ids get unique ids. Results of earlier turns follow, unchanged.
    """
    ordered: list[Message] = []
    place = 0
    while place < len(messages):
        turn = messages[place]
        place += 1
        results = list(takewhile(lambda message: message["role"] == "tool", messages[place:]))
        calls = turn.get("tool_calls")
        if not calls or not results:
            ordered.append(turn)
            continue
        place += len(results)
        named = [(call["id"], call["function"]["name"]) for call in calls]
        ids = unique_ids([call_id for call_id, _ in named])
        paired = pair_results(named, [(result["tool_call_id"], result["name"]) for result in results])
        ordered.append({**turn, "tool_calls": [{**call, "id": one} for call, one in zip(calls, ids, strict=True)]})
        for number in sorted(range(len(results)), key=lambda one: paired.get(one, len(calls))):
            call = paired.get(number)
            own = {} if call is None else {"tool_call_id": ids[call], "name": named[call][1]}
            ordered.append({**results[number], **own})
    return ordered


def offered_tools(events: list[TraceUnion], row: TaskRow) -> list[Tool]:
    """Return the flat tools of the last call, or the task's if no call was offered any.

    Raises Dropped if they lack a tool of an earlier call or define it differently: a row has only one list of tools.
    """
    *earlier, tools = tool_offers(events) or [[]]
    if any(tool not in tools for before in earlier for tool in before):
        raise Dropped("tools_changed")
    return tools or _own_tools(row)


def turn_tools(events: list[TraceUnion], row: TaskRow) -> list[list[Tool]]:
    """Return the flat tools of each call that wrote a turn, or the task's if it was offered none."""
    tools: list[Tool] = []
    found = []
    for event in events:
        if isinstance(event, SessionOpened):
            tools = event.tools
        elif isinstance(event, ModelCall):
            tools = tools if event.tools_in is None else event.tools_in
            if event.items:
                found.append(tools or _own_tools(row))
    return found


def _own_tools(row: TaskRow) -> list[Tool]:
    return row["responses_create_params"].get("tools") or []


def nested_tools(tools: list[Tool]) -> list[dict[str, Any]]:
    """Return flat Responses tools as Chat Completions tools. Raises Dropped for tools that are not functions."""
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
"""JSON Schema keywords that hold plain values, in which null is meaningful."""
_NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
"""JSON Schema keywords that map property names to schemas. Property names are not keywords."""


def _without_nulls(schema: Any) -> Any:
    """Return a JSON schema without keywords that are null, because Arrow types a column of nulls as null."""
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


def _item_messages(
    items: list[Item], names: ToolNames, arguments: ArgumentsAs, images: bool, authors: Sequence[str] = ()
) -> list[Message]:
    """Return items without turn boundaries as messages. The tool of each call id is added to `names`."""
    messages: list[Message] = []
    written = zip(items, authors or [""] * len(items), strict=True)
    for (by_model, author), run in groupby(written, lambda one: (is_by_model(one[0]), one[1])):
        turn = [item for item, _ in run]
        if by_model:
            messages.append(_assistant_message(turn, names, arguments) | ({AUTHOR: author} if author else {}))
        else:
            messages += [_other_message(item, names, images) for item in turn]
    return messages


def _other_message(item: Item, names: ToolNames, images: bool) -> Message:
    kind = item_type(item)
    if kind == "function_call_output":
        call_id = _text_field(item, "call_id")
        name = names.take(call_id)
        if name is None:
            raise Dropped("orphan_tool_output")
        return {
            "role": "tool",
            "tool_call_id": call_id,
            "content": _content(item.get("output"), images),
            "name": name,
        }
    if kind != "message":
        raise Dropped("unknown_item")
    role = "system" if item.get("role") == "developer" else item.get("role")
    if role not in {"system", "user"}:
        raise Dropped("unknown_role")
    return {"role": role, "content": _content(item.get("content"), images and role == "user")}


def _content(content: object, images: bool) -> str | list[dict[str, Any]]:
    shown = isinstance(content, list) and any(isinstance(part, dict) and _image_of(part) for part in content)
    if not images or not shown:
        return flat_text(content)
    assert isinstance(content, list)
    return [_training_part(part) for part in content]


def find_media(events: Iterable[TraceUnion]) -> str:
    """Return the ledger's reason for an image, a file or audio, which token IDs alone do not hold, or an empty text."""
    added = (event.items_in if isinstance(event, ModelCall) else event.new_items() for event in events)
    contents = (item.get(key) for items in added for item in items for key in ("content", "output"))
    parts = (part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict))
    return next(filter(None, (_REFUSED_PARTS.get(str(part.get("type"))) for part in parts)), "")


def _training_part(part: Any) -> dict[str, Any]:
    address = _image_of(part) if isinstance(part, dict) else ""
    return {"type": "image", "image": address} if address else {"type": "text", "text": _part_text(part)}


def _image_of(part: dict[str, Any]) -> str:
    address = part.get("image_url")
    return address if part.get("type") == "input_image" and isinstance(address, str) else ""


def _assistant_message(
    items: list[Item], names: ToolNames, arguments: ArgumentsAs, *, silent_turns: bool = False
) -> Message:
    """Return a turn as one message.

    `content` is "" if the turn has no text, because some templates crash on null; absent keys are left out.
    """
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for item in items:
        kind = item_type(item)
        if kind == "function_call":
            call_id, name = _text_field(item, "call_id"), _text_field(item, "name")
            function = {"name": name, "arguments": _arguments(item.get("arguments"), arguments)}
            calls.append({"id": call_id, "type": "function", "function": function})
        elif kind == "reasoning":
            told = flat_text(item.get("content"), by_model=True) or flat_text(item.get("summary"), by_model=True)
            thoughts.append(told)
        elif is_by_model(item):
            texts.append(flat_text(item.get("content"), by_model=True))
        else:
            raise Dropped("unknown_item")
    names.add(items)
    content = TEXT_SEPARATOR.join(filter(None, texts))
    if not content.strip() and not calls and not silent_turns:
        raise Dropped("empty_turn")
    reasoning = TEXT_SEPARATOR.join(filter(None, thoughts))
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
    """Return the arguments of a call. An empty string means no arguments, as in the agent loop."""
    if wanted == "any_text" and isinstance(given, str) and given.strip():
        return given
    parsed = given
    if isinstance(given, str):
        try:
            # Not orjson, which reads integers of more than 64 bits as floats: those would be different arguments.
            floats = _exact_float if wanted == "exact_object" else finite_float
            parsed = json.loads(given, parse_constant=refuse_constant, parse_float=floats) if given.strip() else {}
        except (ValueError, RecursionError):
            raise Dropped("malformed_arguments") from None
    if not isinstance(parsed, dict):
        raise Dropped("malformed_arguments")
    if wanted in {"object", "exact_object"}:
        return parsed
    return given if isinstance(given, str) and given.strip() else json.dumps(parsed, ensure_ascii=False)


def _exact_float(text: str) -> float:
    number = finite_float(text)
    if not is_loaded_exactly(number):
        raise Dropped("inexact_numbers")
    return number


def flat_text(content: object, *, by_model: bool = False) -> str:
    """Return content parts as one text, see `join_parts`. Raises Dropped for parts other than text, with their type."""
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
