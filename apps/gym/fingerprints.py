"""Hashes that say whether two attempts started from the same prompt, or did the same thing."""

import hashlib
from typing import Any

import orjson

from apps.gym.events import Prompt, SessionOpened, TraceUnion
from apps.gym.items import Item

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


def _canonical(item: Item, numbers: dict[str, int]) -> dict[str, Any]:
    kept = {key: value for key, value in item.items() if key not in _RANDOM_KEYS}
    if "call_id" in item:
        kept["call"] = numbers.setdefault(str(item["call_id"]), len(numbers))
    return kept


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
