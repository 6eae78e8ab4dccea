"""Build the outline of a trace: one line per step."""

from collections.abc import Iterable
from typing import Any

from apps.dashboard.traces.bodies import parse_json
from apps.dashboard.traces.cards import Block, Card

_CHARACTERS = 90
_LONGEST_CALL = 10_000
KINDS = {
    "session": "session",
    "prompt": "prompt",
    "model_call": "model",
    "tool_result": "result",
    "environment_turn": "env",
    "judge_call": "judge",
    "verification": "verify",
    "agent_end": "end",
    "error": "error",
}
_USER = {"Simulated user": "user", "User model call": "user model"}
"""Labels of the cards of a simulated user, by title."""


Line = dict[str, Any]
"""A line: card, label, names of called tools, start of the text, duration, and whether it has comments."""


def outline(cards: Iterable[Card], commented: frozenset[int] = frozenset()) -> list[Line]:
    """Return the lines of the outline. `commented` are the numbers of events with comments."""
    return [_line(card, commented) for card in cards]


def _line(card: Card, commented: frozenset[int]) -> Line:
    seconds = max((block.result.duration for block in card.blocks if block.result), default=0.0)
    return {
        "card": card,
        "label": _USER.get(card.title) or KINDS.get(card.kind, card.kind),
        "tools": tuple(block.title for block in card.blocks if block.kind == "call" and not block.is_input),
        "said": _step_text(card.blocks),
        "duration": card.duration + seconds,
        "is_commented": any(card.seq <= seq <= card.last_seq for seq in commented),
    }


def _step_text(blocks: Iterable[Block]) -> str:
    """Return the text for a step: its last text, else the arguments of a call, else the reasoning."""
    given = [block for block in blocks if block.kind != "fold" and not block.is_input]
    for kinds in (("text",), ("call",), ("output", "reasoning", "json", "image")):
        for block in reversed(given):
            if block.kind in kinds and block.body.text:
                return " ".join(_first_argument(block).split())[:_CHARACTERS]
    return ""


def _first_argument(block: Block) -> str:
    """Return the first text argument of a call, for example a command, path or query."""
    if block.kind == "call" and len(block.body.text) < _LONGEST_CALL:
        values = parse_json(block.body.text)
        texts = [value for value in values.values() if isinstance(value, str)] if isinstance(values, dict) else []
        if texts:
            return str(texts[0][: 4 * _CHARACTERS])
    return block.body.text[: 4 * _CHARACTERS]
