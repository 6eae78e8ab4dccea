"""Restore prompts that were redacted in traces, from the task row, so that exports have the prompt the model saw."""

import copy
from collections.abc import Sequence

import msgspec

from apps.gym.redaction.redactor import MARK, Redactor
from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item


def restore_prompts(events: list[TraceUnion], prompt: Sequence[Item], redactor: Redactor) -> list[TraceUnion]:
    """Return the events with each masked item replaced by the item of the prompt that it masks.

    Replies and tool results are not changed. Items also stay masked if a redaction pattern was added or deleted since.
    """
    exact: dict[bytes, Item] = {}
    for item in prompt:
        masked, found = redactor.redact_value(copy.deepcopy(item))
        if found:
            exact[_encode(masked)] = item
    if not exact:
        return events

    def restored(items: list[Item]) -> list[Item]:
        return [exact.get(encoded, item) if MARK.encode() in (encoded := _encode(item)) else item for item in items]

    def changed(event: TraceUnion) -> TraceUnion:
        if isinstance(event, Prompt):
            return msgspec.structs.replace(event, items=restored(event.items))
        if isinstance(event, ModelCall) and event.items_in:
            return msgspec.structs.replace(event, items_in=restored(event.items_in))
        return event

    return [changed(event) for event in events]


def _encode(item: Item) -> bytes:
    return msgspec.json.encode(item, order="sorted")
