"""Texts of an event for reading and searching: messages, calls, results and verdicts."""

from collections.abc import Iterable
from typing import Any

from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    ToolResult,
    TraceUnion,
    Verification,
)
from apps.gym.traces.items import Item, dump_json, item_type, text_of


def texts_of(event: TraceUnion) -> list[str]:
    """Return all texts, in the order in which a page shows them, without ids, figures and sampling."""
    match event:
        case ModelCall():
            texts = _items([*event.items_in, *event.items])
        case Prompt() | EnvironmentTurn():
            texts = _items(event.items)
        case ToolResult():
            texts = [event.name, event.text, event.error]
        case JudgeCall():
            texts = [*_items([*event.prompt, *event.items]), event.problem]
        case Verification():
            texts = [event.explanation, *_objects(event.details)]
        case AgentEnd():
            failed = [text for one in event.failed_calls or () for text in (one.message, one.received)]
            texts = [event.answer, event.kind, event.message, *failed, *_objects(event.artifacts)]
        case ErrorRaised():
            texts = [event.kind, event.message]
        case _:
            texts = []
    return texts


def _items(items: Iterable[Item]) -> list[str]:
    texts: list[str] = []
    for item in items:
        match item_type(item):
            case "message" | "reasoning":
                texts.append(text_of(item))
            case "function_call":
                texts += str(item.get("name") or ""), _written(item.get("arguments"))
            case "function_call_output":
                texts.append(_written(item.get("output")))
            case _:
                texts.append(dump_json(item))
    return texts


def _objects(value: dict[str, Any]) -> list[str]:
    return [dump_json(value)] if value else []


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dump_json(value)
