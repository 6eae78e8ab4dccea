"""The replies of an attempt in turns, read back from its response: what a verifier plays again."""

from typing import Any

from apps.gym.items import Item, assistant_text, item_type


def answered_replies(response: dict[str, Any]) -> list[str]:
    """The text of each reply that the environment answered, in order. It answers with one message."""
    return _split(response)[0]


def all_replies(response: dict[str, Any]) -> list[str]:
    """The same with the last one, which ended the attempt; not if it was cut off, as then nobody heard it."""
    answered, rest = _split(response)
    return answered if not rest or response.get("status") == "incomplete" else [*answered, assistant_text(rest)]


def _split(response: dict[str, Any]) -> tuple[list[str], list[Item]]:
    answered: list[str] = []
    rest: list[Item] = []
    for item in response.get("output") or []:
        if item_type(item) == "message" and item.get("role") == "user":
            answered.append(assistant_text(rest))
            rest = []
        else:
            rest.append(item)
    return answered, rest
