"""Hashes that say whether two tasks ask the same, and whether two attempts began with the same or did the same."""

import hashlib
from typing import Any

import orjson

from apps.gym.traces.events import Prompt, SessionOpened, TraceUnion
from apps.gym.traces.items import Item, TaskRow, input_items, item_type, message

_MARKS = {"id", "task_id", "uuid", "external_id", "_ng_task_index", "split", "tags", "agent_ref"}
_RANDOM_KEYS = {"id", "status", "call_id"}


def prompt_fingerprint(events: list[TraceUnion]) -> str:
    """Of the prompt's items and the tools that were offered."""
    prompt = [event.items for event in events if isinstance(event, Prompt)]
    tools = [event.tools for event in events if isinstance(event, SessionOpened)]
    return _digest([prompt, tools])


def completion_fingerprint(events: list[TraceUnion]) -> str:
    """Of everything after the prompt. Ids are random in every attempt: calls are numbered instead."""
    numbers: dict[str, int] = {}
    items = [item for event in events if not isinstance(event, Prompt) for item in event.new_items()]
    return _digest([_canonical(item, numbers) for item in items])


def question_fingerprint(row: TaskRow) -> str:
    """Of what the task shows a model, in whatever shape the row has it: not of its id, its answer, its sampling or its
    tools. Where that is no text, since a template or the environment asks, of the row's other fields but its marks."""
    instructions = row["responses_create_params"].get("instructions")
    opening = [message("system", instructions)] if isinstance(instructions, str) and instructions else []
    numbers: dict[str, int] = {}
    items = [*opening, *input_items(row)]
    if all(item_type(item) == "message" and not item.get("content") for item in items):
        return _digest({key: value for key, value in row.items() if key not in _MARKS})
    return _digest([_shown(item, numbers) for item in items])


def _shown(item: Item, numbers: dict[str, int]) -> Any:
    """A message as its role and text, however it is written; anything else as it is, its calls numbered."""
    if item_type(item) != "message":
        return _canonical(item, numbers)
    role = "system" if item.get("role") == "developer" else item.get("role")
    content = item.get("content")
    if not isinstance(content, list):
        return [role, content]
    texts = [text for part in content if isinstance(text := part.get("text") if isinstance(part, dict) else part, str)]
    return [role, "".join(texts) if len(texts) == len(content) else content]


def _canonical(item: Item, numbers: dict[str, int]) -> dict[str, Any]:
    kept = {key: value for key, value in item.items() if key not in _RANDOM_KEYS}
    if "call_id" in item:
        kept["call"] = numbers.setdefault(str(item["call_id"]), len(numbers))
    return kept


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
