"""Convert conversations to chat messages: ShareGPT turns, and demonstrations cut at the last user turn."""

from typing import Any

import msgspec

from apps.gym.redaction.shortening import cut

Messages = list[dict[str, Any]]

CONVERSATION_NAMES = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
"""Columns that hold a conversation."""
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "system": "system",
    "function_call": "call",
    "tool_call": "call",
    "observation": "tool",
    "tool": "tool",
    "tool_response": "tool",
    "function_response": "tool",
}
"""Roles of ShareGPT files, as LLaMA-Factory, Axolotl and Hermes write them."""


def is_sharegpt(value: Any) -> bool:
    """Return True for a list of turns with `from` and `value`."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and isinstance(turn.get("from"), str) and "value" in turn for turn in value)
    )


def read_sharegpt(turns: Messages) -> Messages:
    """Return ShareGPT turns as chat messages. A result belongs to the call before it. Raises ValueError."""
    messages: Messages = []
    waiting: list[str] = []
    for number, turn in enumerate(turns):
        role = _ROLES.get(turn["from"].lower())
        if role is None:
            raise ValueError(f"turn {number + 1} has the unknown role {cut(turn['from'], 40)!r}")
        text = turn["value"] if isinstance(turn["value"], str) else msgspec.json.encode(turn["value"]).decode()
        if role == "call":
            calls = _calls(text, number)
            waiting = [call["id"] for call in calls]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif role == "tool":
            call_id = waiting.pop(0) if waiting else f"call_{number}"
            messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        else:
            messages.append({"role": role, "content": text})
    return messages


def _calls(text: str, number: int) -> Messages:
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(f"turn {number + 1} is a call, but not JSON") from None
    calls = given if isinstance(given, list) else [given]
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise ValueError(f"turn {number + 1} is a call without a name")
    return [
        {
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call["name"], "arguments": call.get("arguments", call.get("parameters", {}))},
        }
        for at, call in enumerate(calls)
    ]


def cut_demonstration(messages: Messages) -> tuple[Messages, str | None]:
    """Return the messages up to the last user turn, and the text of the final reply after it.

    The turns between them may show the answer, for example in the result of a tool. Conversations that do not end with
    an assistant message are no demonstrations and stay whole.
    """
    if len(messages) < 2 or messages[-1].get("role") != "assistant":
        return messages, None
    last = messages[-1]
    answer = last["content"] if isinstance(last.get("content"), str) and last["content"] else None
    end = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=len(messages) - 2)
    return messages[: end + 1], answer
