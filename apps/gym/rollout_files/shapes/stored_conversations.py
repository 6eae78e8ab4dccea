"""Chat messages as stored by others, looked at one by one, and as Responses items."""

from collections.abc import Sequence
from typing import Any

import orjson

from apps.gym.redaction.shortening import cut
from apps.gym.rollout_files.response_turns import TURN_ENDS
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.traces.chat_turns import assistant_items, chat_items
from apps.gym.traces.items import Item, Tool, dump_json

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read_messages(value: object, pointer: str, *, text_role: str) -> list[Message]:
    """The messages of a list, or of a text that `text_role` says, in today's form: tool calls nested, each with an id,
    each tool output with the id of its call. Raises RowRefused."""
    if isinstance(value, str):
        return [{"role": text_role, "content": value}] if value.strip() else []
    if not isinstance(value, list):
        raise RowRefused("wrong_type", "must be a list of messages", pointer=pointer)
    messages: list[Message] = []
    waiting: list[str] = []
    for place, given in enumerate(value):
        at = f"{pointer}/{place}"
        message = _checked(given, at, text_role)
        if message["role"] == "assistant":
            message["tool_calls"] = _calls(message, at, place)
            waiting = [call["id"] for call in message["tool_calls"]]
        elif message["role"] == "tool":
            message["tool_call_id"] = _answered(message, waiting, at)
        messages.append(message)
    return messages


def prompt_items(messages: Sequence[Message]) -> list[Item]:
    return chat_items(messages)


def spoken_items(messages: Sequence[Message], first: int) -> list[Item]:
    """The items of an attempt, each assistant message one turn; `first` is the place of the first, for its ids."""
    items: list[Item] = []
    for place, message in enumerate(messages, start=first):
        if message["role"] != "assistant":
            items += chat_items([message])
        else:
            turn = assistant_items(message, place) or [_silence(place)]
            turn[-1][TURN_ENDS] = True
            items += turn
    return items


def _silence(place: int) -> Item:
    """A turn that says nothing is one all the same."""
    part = {"type": "output_text", "text": "", "annotations": []}
    return {"type": "message", "id": f"msg_{place}", "role": "assistant", "status": "completed", "content": [part]}


def read_tools(value: object, pointer: str) -> list[Tool]:
    """Tools in flat form, from flat, nested or bare ones, or from a text that holds them. Raises RowRefused."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value or "[]")
        except orjson.JSONDecodeError:
            raise RowRefused("not_json", "is text that holds no JSON: a list of tools", pointer=pointer) from None
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowRefused("wrong_type", "must be a list of tools", pointer=pointer)
    tools = []
    for place, given in enumerate(value):
        at = f"{pointer}/{place}"
        function = given.get("function", given) if isinstance(given, dict) else None
        if not isinstance(function, dict) or given.get("type") not in (None, "function"):
            raise RowRefused("wrong_type", "must be a function tool: an object with name and parameters", pointer=at)
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise RowRefused("missing", "must be the tool's name", pointer=f"{at}/name")
        kept = {key: function[key] for key in ("description", "parameters", "strict") if function.get(key) is not None}
        tools.append({"type": "function", "name": function["name"], **kept})
    return tools


def _checked(given: object, at: str, text_role: str) -> Message:
    if not isinstance(given, dict):
        raise RowRefused("wrong_type", "must be a message: an object with role and content", pointer=at)
    message = {key: value for key, value in given.items() if value is not None}
    role = message.get("role")
    if role == "text":
        # What `verifiers` calls the plain text of a completion.
        message["role"] = text_role
    elif role not in ROLES:
        shown = "is missing" if role is None else f"is {cut(str(role), 40)!r}"
        raise RowRefused("unknown_role", f"{shown}: it must be one of {', '.join(ROLES)}", pointer=f"{at}/role")
    elif role == "function":
        message["role"] = "tool"
    content = message.get("content", "")
    if not isinstance(content, str | list):
        raise RowRefused("wrong_type", "must be text or a list of parts", pointer=f"{at}/content")
    for number, part in enumerate(content if isinstance(content, list) else ()):
        _check_part(part, f"{at}/content/{number}")
    return message


_PART_TYPES = {"text": (str,), "image_url": (str, dict), "file": (dict,)}


def _check_part(part: object, at: str) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise RowRefused("wrong_type", "must be a part: an object with a type", pointer=at)
    wanted = _PART_TYPES.get(part["type"])
    if wanted and not isinstance(part.get(part["type"]), wanted):
        text = f"must have {part['type']!r} beside its type"
        raise RowRefused("wrong_type", text, pointer=at)


def _calls(message: Message, at: str, place: int) -> list[dict[str, Any]]:
    given = message.get("tool_calls") or []
    if not isinstance(given, list):
        raise RowRefused("wrong_type", "must be a list of calls", pointer=f"{at}/tool_calls")
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    return [
        _call(one, f"{at}/tool_calls/{number}", f"call_{place}_{number}") for number, one in enumerate(given) if one
    ]


def _call(given: object, at: str, unnamed: str) -> dict[str, Any]:
    """A call: nested, flat, or as text that holds one of these, as saved data sets of `verifiers` do."""
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            raise RowRefused("not_json", "is text that holds no JSON: a tool call", pointer=at) from None
    function = given.get("function", given) if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowRefused("wrong_type", "must be a call: an object with id, and a function with name", pointer=at)
    arguments = function.get("arguments")
    return {
        "id": str(given.get("id") or unnamed),
        "type": "function",
        "function": {
            "name": function["name"],
            "arguments": arguments if isinstance(arguments, str) else _written(arguments or {}, at),
        },
    }


def _written(arguments: object, at: str) -> str:
    try:
        return dump_json(arguments)
    except TypeError:
        raise RowRefused("too_deep", "is nested too deep", pointer=f"{at}/function/arguments") from None


def _answered(message: Message, waiting: list[str], at: str) -> str:
    """The id of the call that this output answers: its own, or that of the first call that waits for one."""
    given = message.get("tool_call_id")
    if isinstance(given, str) and given:
        if given in waiting:
            waiting.remove(given)
        return given
    if not waiting:
        text = "is missing, and no call waits for an output: give the id of the call"
        raise RowRefused("missing", text, pointer=f"{at}/tool_call_id")
    return waiting.pop(0)
