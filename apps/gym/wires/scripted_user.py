"""The scripted policy model as a simulated user: it answers from sentences of its scenario that have a fixed form.

Your card number is M-104.                                    told when the message has these words
When asked to put A into the returns box, call return_book({"title": "A"}).
When asked for anything else, say "Yes, please renew B, too."  once
"""

import re

from apps.gym.traces.items import Item, dump_json, item_type, read_json, text_of
from apps.gym.wires.protocol import USER_ROLE, Ask

_FACT = re.compile(r"\bYour ([\w\s-]+?) is (.+?)\.(?=\s|$)")
_CALL = re.compile(r"\bWhen asked to (.+?), call (\w+)\((\{.*?\}|)\)\.")
_SAY = re.compile(r'\bWhen asked (?:for|whether|about) (.+?), say "(.+?)"')
_IGNORED = {"a", "an", "the", "your", "to", "of", "for", "is", "it"}
_UNKNOWN = "I do not know what to say to that."
_MOST_UNKNOWN = 3


def is_asked_to_play_user(ask: Ask) -> bool:
    return bool(ask.items) and text_of(ask.items[0]).startswith(USER_ROLE)


def play_user_by_rule(ask: Ask) -> tuple[Item | None, str]:
    """Return a tool call, or None and the next message. The same conversation always gives the same reply."""
    scenario = text_of(ask.items[0])
    at = max(at for at, item in enumerate(ask.items) if item.get("role") == "user")
    words = _words(text_of(ask.items[at]))
    calls = [found for found in _CALL.finditer(scenario) if _words(found[1]) <= words]
    outputs = [str(item["output"]) for item in ask.items[at:] if item.get("type") == "function_call_output"]
    if len(outputs) < len(calls):
        return _call(calls[len(outputs)], len(ask.items)), ""
    said = [text_of(item) for item in ask.items if item_type(item) == "message" and item.get("role") == "assistant"]
    facts = [f"My {found[1]} is {found[2]}." for found in _FACT.finditer(scenario) if _words(found[1]) <= words]
    told = [
        found[2]
        for found in _SAY.finditer(scenario)
        if _words(found[1]) <= words and not any(found[2] in one for one in said)
    ]
    if answers := [*(f"I have done that: {output}" for output in outputs), *facts, *told]:
        return None, " ".join(answers)
    if "transfer" in words or "transferred" in words:
        return None, "###TRANSFER###"
    if {"anything", "else"} <= words or sum(_UNKNOWN in one for one in said) >= _MOST_UNKNOWN:
        return None, "###STOP###"
    return None, _UNKNOWN


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w@.-]*\w", text.lower())) - _IGNORED


def _call(found: re.Match[str], number: int) -> Item:
    return {
        "type": "function_call",
        "call_id": f"call_user_{number}",
        "name": found[2],
        "arguments": dump_json(read_json(found[3] or "{}", {})),
    }
