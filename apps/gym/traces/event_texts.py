"""Texts of an event for reading and searching: messages, calls, results and verdicts."""

from collections.abc import Iterable, Iterator
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


def texts_of(event: TraceUnion) -> Iterator[str]:
    """Yield each text, in the order in which a page shows them, without ids, figures and sampling."""
    match event:
        case ModelCall():
            yield from _items([*event.items_in, *event.items])
        case Prompt() | EnvironmentTurn():
            yield from _items(event.items)
        case ToolResult():
            yield from (event.name, event.text, event.error)
        case JudgeCall():
            yield from _items([*event.prompt, *event.items])
            yield event.problem
        case Verification():
            yield event.explanation
            if event.details:
                yield dump_json(event.details)
        case AgentEnd():
            yield from (event.answer, event.kind, event.message)
            if event.artifacts:
                yield dump_json(event.artifacts)
        case ErrorRaised():
            yield from (event.kind, event.message)


def _items(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        match item_type(item):
            case "message" | "reasoning":
                yield text_of(item)
            case "function_call":
                yield str(item.get("name") or "")
                yield _written(item.get("arguments"))
            case "function_call_output":
                yield _written(item.get("output"))
            case _:
                yield dump_json(item)


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dump_json(value)
