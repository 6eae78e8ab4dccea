"""Hide parts of trace events from reviewers of blind queues.

Unless the queue shows the model, only listed fields are shown, so new or imported fields cannot leak.
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

_ITEM_KEYS = frozenset(
    {
        *("type", "role", "content", "summary", "call_id", "name", "arguments", "input", "output"),
        *("action", "queries", "code", "outputs", "server_label", "error"),
    }
)
"""Keys with the text and calls of an item. Ids, status and encrypted content could reveal the model."""
_PART_KEYS = frozenset(
    {
        *("type", "text", "refusal", "image_url", "detail", "input_audio"),
        *("filename", "file_data", "file_url", "annotations"),
    }
)
_KEYS_WITH_PARTS = ("content", "summary", "output")


class Visibility(NamedTuple):
    """What a reviewer may see in addition to the attempts."""

    expected: bool
    reward: bool
    model: bool


EVERYTHING = Visibility(expected=True, reward=True, model=True)


def hide_results(events: list[tuple[int, TraceUnion]], shows: Visibility) -> list[tuple[int, TraceUnion]]:
    """Return the visible events of one attempt."""
    if shows == EVERYTHING:
        return events
    calls: dict[str, str] = {}
    kept = [(seq, _visible_event(event, shows, calls)) for seq, event in events]
    return [(seq, event) for seq, event in kept if event is not None]


def _visible_event(event: TraceUnion, shows: Visibility, calls: dict[str, str]) -> TraceUnion | None:
    """Return the visible part of an event, or None if it is hidden. Events of unknown kinds are hidden."""
    if isinstance(event, Verification | JudgeCall):
        return _visible_verdict(event, shows)
    # In imported attempts, the original session may contain the model's name and the verifier's fields.
    if isinstance(event, SessionOpened):
        event = replace(event, original={})
    anonymous = _anonymous(event, calls)
    return event if shows.model and anonymous is not None else anonymous


def _visible_verdict(event: Verification | JudgeCall, shows: Visibility) -> TraceUnion | None:
    """Return the event, or None if it is hidden.

    Explanations of verifiers and prompts of judges contain the expected answer, so they are hidden with it.
    """
    if not shows.reward or (isinstance(event, JudgeCall) and not shows.expected):
        return None
    if isinstance(event, Verification) and not shows.expected:
        event = replace(event, explanation="", details={})
    return event if shows.model else replace(event, at=0.0, duration=0.0)


def _anonymous(event: TraceUnion, calls: dict[str, str]) -> TraceUnion | None:
    """Return only the text and calls of an event, without anything that could reveal the model."""
    match event:
        case SessionOpened():
            return SessionOpened(environment=event.environment, tools=event.tools)
        case ModelCall():
            items, reason = _items(event.items, calls), event.finish_reason
            return ModelCall(seen=event.seen, items=items, finish_reason=reason, tools_in=event.tools_in)
        case Prompt() | EnvironmentTurn():
            return replace(event, items=_items(event.items, calls), authors=[], at=0.0, duration=0.0)
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
    kept = {key: value for key, value in item.items() if key in _ITEM_KEYS}
    for key in _KEYS_WITH_PARTS:
        if isinstance(kept.get(key), list):
            kept[key] = [_part(part) for part in kept[key]]
    if "call_id" in kept:
        kept["call_id"] = _number(str(kept["call_id"]), calls)
    return kept


def _part(part: Any) -> Any:
    return {key: value for key, value in part.items() if key in _PART_KEYS} if isinstance(part, dict) else part


def _number(call_id: str, calls: dict[str, str]) -> str:
    """Return a neutral call id, because the format of ids reveals the provider."""
    return calls.setdefault(call_id, f"call-{len(calls) + 1}")
