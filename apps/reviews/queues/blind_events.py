"""The parts of a trace event that a reviewer may see.

Only listed fields are shown, so new or imported fields cannot leak.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
)
from apps.gym.traces.items import Item

_OF_ITEMS = frozenset(
    {
        *("type", "role", "content", "summary", "call_id", "name", "arguments", "input", "output"),
        *("action", "queries", "code", "outputs", "server_label", "error"),
    }
)
"""The text and calls of an item. Id, status and encrypted content could reveal the model."""
_OF_PARTS = frozenset(
    {
        *("type", "text", "refusal", "image_url", "detail", "input_audio"),
        *("filename", "file_data", "file_url", "annotations"),
    }
)
_WITH_PARTS = ("content", "summary", "output")


class Shows(NamedTuple):
    """What a reviewer may see besides the attempts."""

    expected: bool
    reward: bool
    model: bool


EVERYTHING = Shows(expected=True, reward=True, model=True)


def keep_back(events: list[tuple[int, TraceUnion]], shows: Shows) -> list[tuple[int, TraceUnion]]:
    """Return the visible events of one attempt."""
    if shows == EVERYTHING:
        return events
    calls: dict[str, str] = {}
    kept = [(seq, _keep_back(event, shows, calls)) for seq, event in events]
    return [(seq, event) for seq, event in kept if event is not None]


def _keep_back(event: TraceUnion, shows: Shows, calls: dict[str, str]) -> TraceUnion | None:
    """Return the visible part of an event; None for hidden verdicts and for unknown events."""
    if isinstance(event, Verification | JudgeCall):
        return _judged(event, shows)
    # For imported attempts, the session comes from the file and may contain the model's name and the verifier's fields.
    if isinstance(event, SessionOpened):
        event = replace(event, original={})
    nameless = _nameless(event, calls)
    return event if shows.model and nameless is not None else nameless


def _judged(event: Verification | JudgeCall, shows: Shows) -> TraceUnion | None:
    """Return the event, or None if it is hidden.

    Explanations of verifiers and prompts of judges contain the expected answer, so they are hidden with it.
    """
    if not shows.reward or (isinstance(event, JudgeCall) and not shows.expected):
        return None
    if isinstance(event, Verification) and not shows.expected:
        event = replace(event, explanation="", details={})
    return event if shows.model else replace(event, at=0.0, duration=0.0)


def _nameless(event: TraceUnion, calls: dict[str, str]) -> TraceUnion | None:
    """Return text and calls, without anything that could reveal the model."""
    match event:
        case SessionOpened():
            return SessionOpened(environment=event.environment, tools=event.tools)
        case ModelCall():
            return ModelCall(seen=event.seen, items=_items(event.items, calls), finish_reason=event.finish_reason)
        case Prompt() | EnvironmentTurn():
            return type(event)(items=_items(event.items, calls))
        case ToolResult():
            number = _number(event.call_id, calls)
            return ToolResult(call_id=number, name=event.name, output=event.output, error=event.error)
        case AgentEnd() | ErrorRaised():
            return _ending(event)
    return None


def _ending(event: AgentEnd | ErrorRaised) -> AgentEnd | ErrorRaised:
    if isinstance(event, ErrorRaised):
        return ErrorRaised(kind=event.kind, message="")
    return AgentEnd(command=event.command, answer=event.answer)


def _items(items: list[Item], calls: dict[str, str]) -> list[Item]:
    return [_item(item, calls) for item in items]


def _item(item: Item, calls: dict[str, str]) -> Item:
    kept = {key: value for key, value in item.items() if key in _OF_ITEMS}
    for key in _WITH_PARTS:
        if isinstance(kept.get(key), list):
            kept[key] = [_part(part) for part in kept[key]]
    if "call_id" in kept:
        kept["call_id"] = _number(str(kept["call_id"]), calls)
    return kept


def _part(part: Any) -> Any:
    return {key: value for key, value in part.items() if key in _OF_PARTS} if isinstance(part, dict) else part


def _number(call_id: str, calls: dict[str, str]) -> str:
    """Return a neutral call id: the form of ids reveals the provider."""
    return calls.setdefault(call_id, f"call-{len(calls) + 1}")
