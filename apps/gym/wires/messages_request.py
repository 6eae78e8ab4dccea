"""The Messages wire: convert an ask to the body of a request, and the body of a request to items and options."""

from itertools import groupby
from typing import Any

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.traces.items import Item, Tool, as_object, encode_json, is_by_model, item_type, message
from apps.gym.wires.dialect import PLAIN, Dialect, check_sampling, read_task_body
from apps.gym.wires.messages_content import (
    Block,
    assistant_blocks,
    assistant_items,
    content_blocks,
    count_earlier,
    input_content,
    plain_content,
    read_call_id,
    write_call_id,
)
from apps.gym.wires.protocol import Ask

_SYSTEM = ("system", "developer")
_ROLES = ("user", "assistant", "system")


class BadMessages(Exception):
    """Raised for a body that is not a Messages request. The text names the field, as the API's own errors do."""


class MessagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, converted to items, tools and sampling with the keys of the Responses API (and `top_k`, `stop`).

    `thinking` is unchanged; only models behind a Messages endpoint accept it. `dropped` names the parts that were left
    out.
    """

    model: str
    items: list[Item]
    tools: list[Tool] = []
    sampling: dict[str, Any] = {}
    thinking: dict[str, Any] | None = None
    stream: bool = False
    dropped: list[str] = []


# ── body → items ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read_messages_request(body: dict[str, Any]) -> MessagesRequest:
    """Convert a request. Raises BadMessages. `cache_control` has no effect and is not named as dropped."""
    given = {key: value for key, value in body.items() if value is not None and key != "cache_control"}
    dropped: list[str] = []
    items = _read_system(given.pop("system", ""), dropped)
    messages = _objects(given.pop("messages", None), "messages")
    if not messages:
        raise BadMessages("messages: at least one message is required")
    for place, one in enumerate(messages):
        items += _read_message(one, place, dropped)
    model = given.pop("model", "")
    if not isinstance(model, str):
        raise BadMessages("model: Input should be a valid string")
    stream, thinking = given.pop("stream", False), given.pop("thinking", None)
    return MessagesRequest(
        model=model,
        items=items,
        tools=_read_tools(_objects(given.pop("tools", []), "tools"), dropped),
        sampling=_read_sampling(given, dropped),
        thinking=thinking if isinstance(thinking, dict) else None,
        stream=stream is True,
        dropped=dropped,
    )


def _objects(given: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise BadMessages(f"{place}: Input should be a valid list of objects")
    return given


def _blocks(content: Any, place: str) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _objects(content, place)


def _read_content(content: Any, place: str, dropped: list[str]) -> str | list[dict[str, Any]]:
    kinds: list[str] = []
    read = input_content(_blocks(content, place), dropped=kinds)
    dropped += [f"{place} ({kind})" for kind in kinds]
    return read


def _read_system(system: Any, dropped: list[str]) -> list[Item]:
    content = _read_content(system, "system", dropped)
    return [{"type": "message", "role": "system", "content": content}] if content else []


def _read_message(given: dict[str, Any], number: int, dropped: list[str]) -> list[Item]:
    role, place = given.get("role"), f"messages.{number}.content"
    if role not in _ROLES:
        raise BadMessages(f"messages.{number}.role: Input should be 'user', 'assistant' or 'system'")
    blocks = _blocks(given.get("content"), place)
    if role == "assistant":
        for position, block in enumerate(blocks):
            if block.get("type") == "tool_use" and not isinstance(block.get("name"), str):
                raise BadMessages(f"{place}.{position}.tool_use.name: Field required")
        kinds: list[str] = []
        items = assistant_items(blocks, number, dropped=kinds)
        dropped += [f"{place} ({kind})" for kind in kinds]
        return items
    items = []
    for is_result, run in groupby(blocks, lambda block: block.get("type") == "tool_result"):
        if is_result:
            # Results of a repeated id are in the order of its calls, because nothing else tells them apart.
            in_order = sorted(run, key=lambda block: count_earlier(str(block.get("tool_use_id", ""))))
            items += [_read_result(block, place, dropped) for block in in_order]
        elif content := _read_content(list(run), place, dropped):
            items.append({"type": "message", "role": role, "content": content})
    return items


def _read_result(block: Block, place: str, dropped: list[str]) -> Item:
    output = _read_content(block.get("content") or "", place, dropped)
    # The Responses API has no field for a failed tool.
    failed = {"status": "incomplete"} if block.get("is_error") else {}
    call_id = read_call_id(str(block.get("tool_use_id", "")))
    return {"type": "function_call_output", "call_id": call_id, "output": output, **failed}


def _read_tools(given: list[dict[str, Any]], dropped: list[str]) -> list[Tool]:
    tools = []
    for place, tool in enumerate(given):
        if tool.get("type", "custom") not in ("custom", None):
            dropped.append(f"tools.{place} ({tool['type']})")
            continue
        if not isinstance(tool.get("name"), str):
            raise BadMessages(f"tools.{place}.name: Field required")
        read = {"type": "function", "name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
        tools.append(read | {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None})
    return tools


_SAMPLING = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _read_sampling(given: dict[str, Any], dropped: list[str]) -> dict[str, Any]:
    """Return the sampling, and name everything else as dropped."""
    choice, config = as_object(given.pop("tool_choice", None)), dict(as_object(given.pop("output_config", None)))
    sampling = {own: given.pop(name) for name, own in _SAMPLING.items() if name in given}
    if choice.get("type") == "tool":
        sampling["tool_choice"] = {"type": "function", "name": choice.get("name", "")}
    elif choice:
        sampling["tool_choice"] = _CHOICES.get(str(choice.get("type")), "auto")
    if choice.get("disable_parallel_tool_use"):
        sampling["parallel_tool_calls"] = False
    form = as_object(config.pop("format", None))
    if form.get("type") == "json_schema":
        sampling["text"] = {"format": {"type": "json_schema", "name": "output", "schema": form.get("schema")}}
    dropped += [f"output_config.{key}" for key in config]
    dropped += given.keys()
    return sampling


# ── items → body ─────────────────────────────────────────────────────────────────────────────────────────────────────


def messages_request(ask: Ask, *, model_name: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """Return the body of POST /messages. Unknown sampling keys (top_k, thinking, …) are passed on.

    Raises SamplingRefused for sampling that would contradict the trace, and PolicyError for an item without a block or
    a task's `metadata.extra_body` that cannot be merged.
    """
    check_sampling(ask.sampling)
    instructions = ask.sampling.get("instructions")
    items = [message("system", instructions), *ask.items] if isinstance(instructions, str) else ask.items
    system, messages = write_messages(items, thinking=dialect.reasoning != "dropped")
    body: dict[str, Any] = {"model": model_name, "messages": messages}
    if system:
        body["system"] = system
    if ask.tools:
        body["tools"] = [messages_tool(tool) for tool in ask.tools]
    sampling = messages_sampling(ask.sampling, has_tools=bool(ask.tools), max_tokens=dialect.max_tokens)
    return dialect.finish(body | sampling)


def write_messages(items: list[Item], *, thinking: bool = True) -> tuple[str | list[Block], list[dict[str, Any]]]:
    """Return the system prompt and the messages.

    Consecutive items of the model form one message, and so do consecutive other items. Raises PolicyError for an item
    without a block.
    """
    items = _with_unique_ids(items)
    opening = next((place for place, item in enumerate(items) if _side(item) != "system"), len(items))
    system = [block for item in items[:opening] for block in content_blocks(item.get("content"))]
    messages = []
    for role, run in groupby(items[opening:], _side):
        turn = list(run)
        if role == "assistant":
            blocks = assistant_blocks(turn, thinking=thinking)
        else:
            blocks = [block for item in turn for block in _user_blocks(item)]
        if blocks or role != "assistant":
            messages.append({"role": role, "content": plain_content(blocks)})
    return plain_content(system), messages


def _with_unique_ids(items: list[Item]) -> list[Item]:
    """Return the items with call ids that do not repeat.

    A repeated id is replaced by the place of the call, so that a growing history keeps it. Outputs get the ids of the
    calls of the latest turn with their id, in order. Further outputs belong to the last of these calls.
    """
    given = [_call_id(item) for item in items]
    taken, turn, has_outputs = set(given), 0, False
    waiting: dict[str, tuple[int, list[str]]] = {}
    written = []
    for place, (item, own) in enumerate(zip(items, given, strict=True)):
        kind, unique = item_type(item), own
        if kind == "function_call":
            turn, has_outputs = turn + has_outputs, False
            if own in waiting:
                unique = f"call_{place}"
                while unique in taken:
                    unique += "_"
            calls = waiting.get(own)
            waiting[own] = turn, [*(calls[1] if calls and calls[0] == turn else []), unique]
        elif kind == "function_call_output":
            has_outputs = True
            names = waiting[own][1] if own in waiting else [own]
            unique = names.pop(0) if len(names) > 1 else names[0]
        written.append(item if unique == own else {**item, "call_id": unique})
    return written


def _call_id(item: Item) -> str:
    return str(item.get("call_id") or (item.get("id") if item.get("type") == "function_call" else "") or "")


def _side(item: Item) -> str:
    if is_by_model(item):
        return "assistant"
    return "system" if item_type(item) == "message" and item.get("role") in _SYSTEM else "user"


def _user_blocks(item: Item) -> list[Block]:
    kind = item_type(item)
    if kind == "message":
        return content_blocks(item.get("content"))
    if kind != "function_call_output":
        raise PolicyError(f"An item of type {kind!r} cannot be sent over the Messages wire.").permanent()
    output = item.get("output")
    blocks = content_blocks(output if isinstance(output, str | list) else encode_json(output).decode())
    failed = {"is_error": True} if item.get("status") == "incomplete" else {}
    content = plain_content(blocks)
    call_id = write_call_id(_call_id(item))
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **failed}]


def messages_tool(tool: Tool) -> dict[str, Any]:
    """Return a flat Responses tool in Messages form. Tools other than functions are unchanged."""
    if tool.get("type", "function") != "function":
        return tool
    given = as_object(tool.get("function")) or tool
    written = {"name": given.get("name"), "input_schema": given.get("parameters") or {"type": "object"}}
    if given.get("description"):
        written["description"] = given["description"]
    return written | ({"strict": True} if given.get("strict") else {})


# Keys of a Responses request that Messages lacks or places elsewhere.
_NOT_FOR_MESSAGES = frozenset(
    {
        "background",
        "include",
        "instructions",
        "logprobs",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "reasoning",
        "seed",
        "stop",
        "store",
        "stream",
        "text",
        "tool_choice",
        "top_logprobs",
        "truncation",
        "user",
    }
)


def messages_sampling(sampling: dict[str, Any], *, has_tools: bool, max_tokens: int) -> dict[str, Any]:
    """Return Responses sampling keys as Messages keys.

    Nulls mean "the endpoint's default" and are left out. The seed is left out, because the API has none. Without
    `max_output_tokens`, `max_tokens` is sent.

    Raises PolicyError for a task's `metadata.extra_body` that cannot be merged.
    """
    given = {key: value for key, value in sampling.items() if value is not None}
    body = {key: value for key, value in given.items() if key not in _NOT_FOR_MESSAGES}
    body["max_tokens"] = given.get("max_output_tokens", max_tokens)
    if stop := given.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if has_tools and (choice := _write_choice(given)):
        body["tool_choice"] = choice
    if config := _write_output(given):
        body["output_config"] = {**config, **as_object(body.get("output_config"))}
    return body | {key: value for key, value in read_task_body(sampling).items() if key != "seed"}


def _write_choice(given: dict[str, Any]) -> dict[str, Any]:
    choice, alone = given.get("tool_choice"), given.get("parallel_tool_calls") is False
    written: dict[str, Any] = {}
    if isinstance(choice, dict) and choice.get("type") == "function":
        written = {"type": "tool", "name": choice.get("name") or as_object(choice.get("function")).get("name", "")}
    elif choice is not None:
        mode = choice.get("mode") if isinstance(choice, dict) else choice
        written = {"type": {"required": "any", "none": "none"}.get(str(mode), "auto")}
    if alone and written.get("type") != "none":
        written = {"type": "auto", **written, "disable_parallel_tool_use": True}
    return written


def _write_output(given: dict[str, Any]) -> dict[str, Any]:
    form = as_object(as_object(given.get("text")).get("format"))
    effort = as_object(given.get("reasoning")).get("effort")
    config: dict[str, Any] = {}
    if form.get("type") == "json_schema":
        config["format"] = {"type": "json_schema", "schema": form.get("schema")}
    if effort in ("low", "medium", "high", "xhigh", "max"):
        config["effort"] = effort
    return config
