"""Print traces and review items as text."""

import json
from typing import Any

_TEXTS = ("name", "output", "error", "message", "explanation")
_VALUES = ("reward", "components", "verdict")


def describe_events(events: list[dict[str, Any]]) -> str:
    """Yield a text for each event of a trace: messages, calls and verdicts."""
    return "\n".join(line for event in events for line in _describe_event(event))


def describe_review(review: dict[str, Any]) -> str:
    """Return a review item as text: draft, expected answer, and each side."""
    shown = review["shown"]
    lines = [f"review {review['id']} of queue {review['queue']}, {review['status']}, until {review['leased_until']}"]
    lines += [
        f"{name}: {json.dumps(one)}"
        for name, one in (("draft", review["draft"]), ("expected", shown["expected"]))
        if one
    ]
    for side in shown["sides"]:
        known = (side["label"], side["stop_reason"], side["reward"], side["model"])
        lines += [
            "",
            "═══ " + " · ".join(str(one) for one in known if one is not None),
            describe_events(side["events"]),
        ]
        lines += [f"… {side['left_out']} more events"] if side["left_out"] else []
    return "\n".join(lines)


def _describe_event(told: dict[str, Any]) -> list[str]:
    event = told["event"]
    lines = [f"── {told['seq']} {event['type']}"]
    lines += [_describe_item(item) for item in event.get("items", ())]
    lines += [str(event[name]) for name in _TEXTS if event.get(name)]
    return lines + [f"{name}: {event[name]}" for name in _VALUES if event.get(name) not in (None, {})]


def _describe_item(item: dict[str, Any]) -> str:
    if item.get("type") == "function_call":
        return f"call {item['name']}({item['arguments']})"
    content = item.get("content") or item.get("summary") or item.get("output") or ""
    parts = [content] if isinstance(content, str) else [part.get("text") or json.dumps(part) for part in content]
    return "\n".join([f"[{item.get('role') or item.get('type')}]", *parts])
