"""Repair items from other sources, so that the fields that trace readers use have the right types."""

from typing import Any

import msgspec

from apps.gym.traces.items import Item

_STATUSES = ("in_progress", "completed", "incomplete")


def mend_item(item: Item, name: str) -> Item:
    """Return the item if it is valid, otherwise a repaired copy; unknown fields stay.

    `name` gives an id to a call without one. Raises ValueError for non-items and unserialisable arguments.
    """
    mended = dict(item)
    kind = _kind_of(mended)
    mended["type"] = kind
    # The API's types of messages and reasoning require an id, those of calls do not: a null is valid there.
    absent = None if kind == "function_call" else ""
    if not isinstance(mended.get("id", absent), str | type(absent)):
        del mended["id"]
    if kind == "function_call":
        _mend_call(mended, name)
    elif kind == "message":
        _mend_message(mended)
    elif kind == "reasoning":
        _mend_reasoning(mended)
    else:
        return mended if mended != item else item
    if "status" in mended and mended["status"] not in (*_STATUSES, None if kind != "message" else _STATUSES[0]):
        del mended["status"]
    return mended if mended != item else item


def _kind_of(item: Item) -> str:
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    if "role" in item:
        return "message"
    if "name" in item and "arguments" in item:
        return "function_call"
    raise ValueError("an item has no type")


def _mend_call(call: Item, name: str) -> None:
    if not _is_text(call.get("call_id")):
        call["call_id"] = call.get("id") or f"call_{name}"
    if not isinstance(call.get("name"), str):
        call["name"] = ""  # no tool has this name, and the model is told so
    arguments = call.get("arguments")
    if arguments is None:
        call["arguments"] = "{}"
    elif not isinstance(arguments, str):
        try:
            call["arguments"] = msgspec.json.encode(arguments).decode()
        except (RecursionError, OverflowError, TypeError) as error:
            raise ValueError(f"the arguments of a call cannot be written: {error}") from None


def _mend_message(spoken: Item) -> None:
    if not _is_text(spoken.get("role")):
        spoken["role"] = "assistant"
    if not isinstance(spoken.get("content"), str):
        spoken["content"] = _mend_parts(spoken.get("content"), "output_text")


def _mend_reasoning(thought: Item) -> None:
    if "summary" in thought:
        thought["summary"] = _mend_parts(thought["summary"], "summary_text")
    if thought.get("content") is not None:
        thought["content"] = _mend_parts(thought["content"], "reasoning_text")
    if not isinstance(thought.get("encrypted_content", ""), str | None):
        del thought["encrypted_content"]


def _mend_parts(given: Any, kind: str) -> list[Any]:
    """Return the valid parts. A text in place of parts becomes a part of `kind`."""
    parts = given if isinstance(given, list) else [given]
    if all(isinstance(part, dict) and _is_sound(part) for part in parts):
        return parts
    mended = []
    for part in parts:
        if isinstance(part, str):
            mended.append({"type": kind, "text": part})
        elif isinstance(part, dict):
            whole = {"type": kind, **part} if _is_text(part.get("type")) else {**part, "type": kind}
            for key in ("annotations", "logprobs"):
                if key in whole and not _are_objects(whole[key]):
                    del whole[key]
            if _is_sound(whole):
                mended.append(whole)
    return mended


def _is_sound(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    if kind == "refusal":
        return isinstance(part.get("refusal"), str) and isinstance(part.get("text", ""), str)
    if kind in ("output_text", "summary_text", "reasoning_text", "text"):
        has_valid_texts = isinstance(part.get("text"), str) and isinstance(part.get("refusal", ""), str)
        return (
            has_valid_texts and _are_objects(part.get("annotations", [])) and _are_objects(part.get("logprobs") or [])
        )
    texts = (part.get("text"), part.get("refusal"))
    return _is_text(kind) and all(isinstance(text, str | None) for text in texts)


def _are_objects(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, dict) for one in given)


def _is_text(given: Any) -> bool:
    return isinstance(given, str) and given != ""
