"""Find the texts of an event by part."""

from collections.abc import Iterator

from apps.dashboard.traces.bodies import Body
from apps.dashboard.traces.card_building import show_one
from apps.dashboard.traces.lanes import REQUEST
from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion
from apps.gym.traces.items import Item, item_type


def bodies_of(event: TraceUnion, seq: int) -> Iterator[Body]:
    """Yield the texts of an event's card, in order. Results stored in other events are left out."""
    for block in show_one(seq, event).blocks:
        yield block.body
        if block.result is not None and block.result.body.seq == seq:
            yield block.result.body


def names_in(event: TraceUnion) -> Iterator[str]:
    """Yield the names of the called tools."""
    for item in event.new_items():
        if item_type(item) == "function_call":
            yield str(item.get("name", ""))


def find_body(event: TraceUnion, seq: int, part: str) -> Body | None:
    """Return a text of the event as stored: arguments and outputs are not indented."""
    found = next((body for body in bodies_of(event, seq) if body.part == part), None)
    if found is None or not found.is_json:
        return found
    exact = _stored_text(event, part)
    return found if exact is None else Body(exact, "json", seq, part)


def _stored_text(event: TraceUnion, part: str) -> str | None:
    """Return the stored text of a part. JSON that was stored as text is unchanged."""
    if isinstance(event, ToolResult):
        return event.output if isinstance(event.output, str) else None
    items, place = event.new_items(), part
    if isinstance(event, ModelCall) and part.startswith(REQUEST):
        items, place = event.items_in, part.removeprefix(REQUEST)
    if not place.isdigit():
        return None
    item: Item = items[int(place)] if int(place) < len(items) else {}
    kind = item_type(item)
    text = item.get("arguments" if kind == "function_call" else "output")
    return text if kind in ("function_call", "function_call_output") and isinstance(text, str) else None
