"""Conversation items: the OpenAI Responses shapes, kept as plain JSON objects so that no unknown field is lost."""

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import orjson

Item = dict[str, Any]
"""One Responses item: `message`, `reasoning`, `function_call`, `function_call_output`, or a type unknown to us."""

Tool = dict[str, Any]
"""A flat Responses tool: `{"type": "function", "name", "description", "parameters", "strict"}`."""

TaskRow = dict[str, Any]
"""A task row: `{"responses_create_params": {...}, ...verifier fields}` (NeMo Gym row format)."""


BETWEEN_TEXTS = "\n\n"
"""Between the texts of one turn that are items of their own: chat has one message a turn, which keeps them apart so."""


class TokenUsage(TypedDict, total=False):
    """Token counts of one reply, or summed over a rollout."""

    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cached_tokens: int


def message(role: Literal["user", "assistant", "system", "developer"], text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def function_call_output(call_id: str, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def item_type(item: Item) -> str:
    """The item's type; an item without one but with a role is a message (the Responses "easy" form)."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "unknown"


def function_calls(items: list[Item]) -> list[Item]:
    return [item for item in items if item.get("type") == "function_call"]


def is_by_model(item: Item) -> bool:
    """Whether a model wrote the item: its thoughts, its text, its calls."""
    kind = item_type(item)
    return kind in {"reasoning", "function_call"} or (kind == "message" and item.get("role") == "assistant")


def join_parts(texts: Iterable[str], *, by_model: bool) -> str:
    """The parts of one text. A model goes on where its last part ended, so nothing stands between; parts of others
    are lines of their own, as vLLM writes them into a prompt. Empty ones add nothing."""
    return ("" if by_model else "\n").join(filter(None, texts))


def text_of(item: Item) -> str:
    """The readable text of a message or reasoning item; parts without text add nothing."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    if not parts and item.get("type") == "reasoning":
        parts = item.get("summary") or []
    texts = (part.get("text") or part.get("refusal") or "" for part in parts if isinstance(part, dict))
    return join_parts(texts, by_model=is_by_model(item))


def assistant_text(items: list[Item]) -> str:
    """All assistant message texts of `items`, joined by newlines: what answer verifiers read."""
    texts = (text_of(item) for item in items if item_type(item) == "message" and item.get("role") == "assistant")
    return "\n".join(text for text in texts if text)


def input_items(row: TaskRow) -> list[Item]:
    """The row's prompt as items; a string input is one user message."""
    given = row["responses_create_params"].get("input", [])
    return [message("user", given)] if isinstance(given, str) else list(given)


def dump_json(value: object) -> str:
    return orjson.dumps(value).decode()
