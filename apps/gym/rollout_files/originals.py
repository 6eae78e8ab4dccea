"""Fields of a stored rollout row that its events do not contain, kept for an unchanged export.

`read_original` keeps them, and `restore_*` put the same keys into the row made from the events.
"""

from collections.abc import Mapping
from typing import Any

from apps.gym.rollout_files.response_turns import TOKEN_FIELDS
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import is_of_attempt
from apps.gym.traces.events import SessionOpened, TraceUnion
from apps.gym.traces.items import Item, item_type
from apps.gym.traces.responses import complete_choice, complete_tools

_FROM_EVENTS = frozenset({"response", "reward", "gymweb"})
"""Keys that can be derived from the events and the rollout."""
NUMBERS = ("_ng_task_index", "_ng_rollout_index", "_ng_rollout_id")
"""Numbers of the row in its original run. Kept if all numbers of an import are consistent."""
_WANTED: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "created_at": (int, float),
    "model": str,
    "object": str,
    "parallel_tool_calls": bool,
    "usage": (dict, type(None)),
}
"""Types of the response keys that all readers need. A value of another type is replaced by GymWeb's own."""
_NEVER_NULL = {
    "message": frozenset({"id", "role", "content", "status"}),
    "reasoning": frozenset({"id", "summary"}),
    "function_call": frozenset({"call_id", "name", "arguments"}),
    "function_call_output": frozenset({"call_id", "output"}),
}
"""Keys of items that must not be null, whatever the source has."""


def read_original(
    row: Mapping[str, Any], events: list[TraceUnion], *, cut: Mapping[str, Any], numbered: bool
) -> dict[str, Any]:
    """Return the fields to keep.

    `cut` has the verifier fields that are too large for the trace; without `numbered`, the row's position in its run is
    left out. Empty parts are left out.
    """
    parts = {
        "row": _row(row, numbered),
        "params": _params(row[PARAMS], events),
        "response": _response(row["response"], row[PARAMS]),
        "items": _items(row["response"]["output"]),
        "details": dict(cut),
    }
    return {name: part for name, part in parts.items() if part}


def without_tokens(original: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without token IDs.

    Observations of an agent on its calls may contain them, and with the tokenizer they would reveal redacted text.
    """
    row = {key: value for key, value in original.get("row", {}).items() if not key.startswith("ng_")}
    return {**original, **({"row": row} if "row" in original else {})}


def find_original(events: list[TraceUnion]) -> dict[str, Any]:
    """Return the kept fields, or an empty object for an attempt made here."""
    return next((event.original for event in events if isinstance(event, SessionOpened)), {})


def restore_params(params: dict[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    return {**params, **original["params"]} if "params" in original else params


def restore_response(response: dict[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    if not original:
        return response
    whole = {**response, **original.get("response", {})}
    output = list(whole["output"])
    for place, own in original.get("items", {}).items():
        output[int(place)] = {**output[int(place)], **own}
    return {**whole, "output": output}


def _row(row: Mapping[str, Any], numbered: bool) -> dict[str, Any]:
    return {
        key: value
        for key, value in row.items()
        if is_of_attempt(key)
        and key not in _FROM_EVENTS
        and not key.startswith("_gymweb")
        and (numbered or key not in NUMBERS)
        and not (key == "reward_components" and isinstance(value, dict))
        and not (key == "explanation" and isinstance(value, str))
    }


def _params(params: Mapping[str, Any], events: list[TraceUnion]) -> dict[str, Any]:
    """Return the parameters with nulls, which the task lacks, without the prompt and tools of the events."""
    session, prompt = events[0], events[1]
    tools = session.tools if isinstance(session, SessionOpened) else []
    told: dict[str, Any] = {"input": prompt.new_items(), **({"tools": tools} if tools else {})}
    return {key: value for key, value in params.items() if key not in told or told[key] != value}


def _response(response: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in response.items() if key != "output" and _is_sound(key, value)}
    if kept.get("tools") == complete_tools(params.get("tools") or []):
        del kept["tools"]
    return kept


def _is_sound(key: str, value: Any) -> bool:
    if key == "tool_choice":
        return value is not None and bool(complete_choice(value) == value)
    if key == "tools":
        return isinstance(value, list) and all(isinstance(tool, dict) for tool in value)
    wanted = _WANTED.get(key)
    return wanted is None or isinstance(value, wanted)


def _items(output: list[Item]) -> dict[str, Item]:
    """Return the parts of items that events do not hold, by position.

    These are nulls, as NeMo Gym's models write them, and tool output other than text.
    """
    found = {}
    for place, item in enumerate(output):
        kind = item_type(item)
        kept = _NEVER_NULL.get(kind, frozenset()) | {"type", *TOKEN_FIELDS}
        own = {key: value for key, value in item.items() if value is None and key not in kept}
        if kind.endswith("_call_output"):
            own |= {key: value for key, value in item.items() if value is not None and not _is_told(key, value)}
        if own:
            found[str(place)] = own
    return found


def _is_told(key: str, value: Any) -> bool:
    """Return True if the event of a tool's output contains this value."""
    text = key == "output" and isinstance(value, str)
    return text or key in {"call_id", *TOKEN_FIELDS} or (key == "type" and value == "function_call_output")
