"""The conversations of a row, as its trainer passes them to a chat template."""

import json
from typing import Any

from apps.gym.exporters.protocol import FAMILIES, Format, Options, Row

Conversation = tuple[list[Row], list[Any] | None]
"""Messages and tools."""

_LINES = (
    ("messages",),
    ("prompt", "completion"),
    ("prompt", "chosen"),
    ("prompt", "rejected"),
    ("context_messages", "chosen_messages"),
    ("context_messages", "rejected_messages"),
    ("messages", "preferred_output"),
    ("messages", "non_preferred_output"),
)
"""Columns whose messages are one conversation."""
_SIDES = {"messages", "completion", "chosen", "chosen_messages"}


def has_conversations(format: Format) -> bool:
    """Return True if rows have messages for a chat template, not only texts, tokens or prompts."""
    features = format.features(Options()).items()
    has_messages = any(name == "input" or (name in _SIDES and kind == "json[]") for name, kind in features)
    return format.row_kind not in ("tasks", "scored") and (has_messages or format.slug == "verl_sft")


def find_unchecked(format: Format, options: Options) -> str:
    """Return which content of these rows no template check covers, with the reason; empty if it covers all."""
    if format.needs_tokens:
        return "Not checked: token IDs, which no template renders."
    if format.trainer == "LLaMA-Factory":
        family = FAMILIES[options.family]
        return f"Not checked: LLaMA-Factory renders rows with its own templates. The family of these rows is {family}."
    has_images = has_conversations(format) and options.images != "dropped"
    return "Not checked: images. A template is checked without its processor." if has_images else ""


def row_conversations(format: Format, row: Row) -> list[Conversation]:
    """Return the conversations of a row. A pair has two."""
    row = {**row, **row.get("input", {})}
    tools = _read(row.get("tools"))
    lines = [line for line in _LINES if line[-1] in row and (line != ("messages",) or "preferred_output" not in row)]
    found = [[one for name in line for one in _read(row.get(name, []))] for line in lines]
    if format.trainer == "Axolotl":
        # Axolotl reads both texts before it renders.
        found = [[with_arguments(one, "object") for one in messages] for messages in found]
        tools = tools and [
            {**one, "function": {**one["function"], "parameters": _read(one["function"]["parameters"])}}
            for one in tools
        ]
    return [(messages, tools) for messages in found]


def with_arguments(message: Row, form: str) -> Row:
    """Return a message with the arguments of its calls as `text` or as `object`."""
    calls = [
        {**call, "function": {**call["function"], "arguments": _formed(call["function"]["arguments"], form)}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _formed(arguments: Any, form: str) -> Any:
    is_text = isinstance(arguments, str)
    return (json.loads(arguments) if is_text else json.dumps(arguments)) if is_text == (form == "object") else arguments


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
