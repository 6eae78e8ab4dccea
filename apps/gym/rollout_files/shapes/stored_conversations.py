"""Validate chat logs and messages of other tools, and convert them to Responses items."""

from collections.abc import Sequence
from typing import Any

import orjson

from apps.gym.redaction.shortening import cut
from apps.gym.rollout_files.response_turns import TURN_ENDS
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.chat_turns import assistant_items, chat_items, message_item
from apps.gym.traces.items import Item, TaskRow, TokenUsage, Tool, dump_json

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read_messages(value: object, pointer: str, *, text_role: str) -> list[Message]:
    """Return the messages of a list, or of a text by `text_role`, in the current format.

    Tool calls are nested and have ids, and tool outputs have the ids of their calls. Raises RowRefused.
    """
    if isinstance(value, str):
        return [{"role": text_role, "content": value}] if value.strip() else []
    messages: list[Message] = []
    waiting: list[str] = []
    for place, given in enumerate(expect(value, list, "a list of messages", pointer)):
        at = f"{pointer}/{place}"
        message = _checked(given, at, text_role)
        if message["role"] == "assistant":
            message["tool_calls"] = _calls(message, at, place)
            waiting = [call["id"] for call in message["tool_calls"]]
        elif message["role"] == "tool":
            message["tool_call_id"] = _answered(message, waiting, at)
        messages.append(message)
    return messages


def stored_task(prompt: Sequence[Message], tools: object, pointer: str, *, number: object, answer: object) -> TaskRow:
    """Return the task of a stored attempt. Raises RowRefused for invalid tools."""
    params: dict[str, Any] = {"input": chat_items(prompt)}
    if given := read_tools(tools, pointer):
        params["tools"] = given
    task: TaskRow = {PARAMS: params}
    if isinstance(number, int | str) and not isinstance(number, bool):
        task["id"] = number
    if answer not in (None, ""):
        task["expected_answer"] = answer
    return task


def spoken_items(messages: Sequence[Message], first: int) -> list[Item]:
    """Return the items of an attempt, with each assistant message as one turn.

    `first` is the position of the first, for ids.
    """
    items: list[Item] = []
    for place, message in enumerate(messages, start=first):
        if message["role"] != "assistant":
            items += chat_items([message])
        else:
            # A turn without content still counts.
            turn = assistant_items(message, place)
            turn = turn or [message_item(place, [{"type": "output_text", "text": "", "annotations": []}])]
            turn[-1][TURN_ENDS] = True
            items += turn
    return items


def read_tools(value: object, pointer: str) -> list[Tool]:
    """Return tools in flat form, from flat, nested or bare ones, or from JSON text. Raises RowRefused."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value or "[]")
        except orjson.JSONDecodeError:
            raise RowRefused("not_json", "is not JSON: a list of tools", pointer=pointer) from None
    if value is None:
        return []
    tools = []
    for place, given in enumerate(expect(value, list, "a list of tools", pointer)):
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
    whole = expect(given, dict, "a message: an object with role and content", at)
    message = {key: value for key, value in whole.items() if value is not None}
    role = message.get("role")
    if role == "text":
        # `verifiers` uses this role for a completion in plain text.
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
    given = expect(message.get("tool_calls") or [], list, "a list of calls", f"{at}/tool_calls")
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    return [
        _call(one, f"{at}/tool_calls/{number}", f"call_{place}_{number}") for number, one in enumerate(given) if one
    ]


def _call(given: object, at: str, unnamed: str) -> dict[str, Any]:
    """Return a call that is nested, flat, or JSON text of either, as in saved `verifiers` data sets."""
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            raise RowRefused("not_json", "is not JSON: a tool call", pointer=at) from None
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
    """Return the id of the call that this output answers: its own, or that of the first unanswered call."""
    given = message.get("tool_call_id")
    if isinstance(given, str) and given:
        if given in waiting:
            waiting.remove(given)
        return given
    if not waiting:
        text = "is missing, and no call waits for an output: give the id of the call"
        raise RowRefused("missing", text, pointer=f"{at}/tool_call_id")
    return waiting.pop(0)


_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "tool_choice": "tool_choice",
}
_OF_THE_CALL = {
    "messages", "tools", "functions", "model", "usage", "finish_reason", "reward", "reward_components", *_SAMPLING,
}  # fmt: skip
FINISHED = {"length": "max_output_tokens", "content_filter": "content_filter"}


def read_chat_log(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """Return the log as a NeMo Gym rollout row, and its task: messages before the first model turn are the prompt.

    Initial replies with `weight` 0, as in fine-tuning files, belong to the prompt. Without a reward, the rollout can be
    reviewed. Raises RowRefused.
    """
    messages = read_messages(row.get("messages"), "/messages", text_role="user")
    first = _first_turn(messages)
    model, metadata = row.get("model"), row.get("metadata")
    if not model and isinstance(metadata, dict):
        model = metadata.get("model")
    params = {"input": chat_items(messages[:first])}
    if tools := read_tools(row.get("tools") or _old_tools(row), "/tools"):
        params["tools"] = tools
    task = {PARAMS: params, **{key: value for key, value in row.items() if key not in _OF_THE_CALL}}
    cut = FINISHED.get(str(row.get("finish_reason") or ""))
    gym_row = {
        **task,
        PARAMS: {**params, **_sampling(row)},
        "response": {
            "model": str(model or ""),
            "output": spoken_items(messages[first:], first),
            "usage": read_usage(row.get("usage")),
            **({"incomplete_details": {"reason": cut}} if cut else {}),
        },
        **{key: row[key] for key in ("reward", "reward_components") if row.get(key) is not None},
        **({} if row.get("reward") is not None else {"verification_skipped": True}),
    }
    return gym_row, task


def read_usage(given: object) -> TokenUsage:
    """Return token counts given in Chat Completions or Responses names, or an empty object."""
    if not isinstance(given, dict):
        return {}
    counts: TokenUsage = {}
    for name, names in (
        ("input_tokens", ("input_tokens", "prompt_tokens")),
        ("output_tokens", ("output_tokens", "completion_tokens")),
    ):
        value = next((given[one] for one in names if given.get(one) is not None), None)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31:
            counts[name] = int(value)  # type: ignore[literal-required]
    return counts


def _first_turn(messages: list[Message]) -> int:
    if not messages:
        raise RowRefused("empty", "is empty: a conversation has a question and an answer", pointer="/messages")
    turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        text = "has no assistant message. Upload these rows as tasks"
        raise RowRefused("no_attempt", text, pointer="/messages")
    if turns[0] == 0:
        text = "starts with the assistant. Add the prompt before it"
        raise RowRefused("no_prompt", text, pointer="/messages")
    return next((place for place in turns if messages[place].get("weight") != 0), turns[0])


def _old_tools(row: dict[str, Any]) -> object:
    functions = row.get("functions")
    return [{"type": "function", "function": one} for one in functions] if isinstance(functions, list) else functions


def _sampling(row: dict[str, Any]) -> dict[str, Any]:
    return {ours: row[theirs] for theirs, ours in _SAMPLING.items() if row.get(theirs) is not None}
