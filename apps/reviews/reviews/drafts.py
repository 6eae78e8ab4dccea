"""Drafts of reviews: validated strictly when saved, read leniently."""

from collections.abc import Mapping
from typing import Any

import msgspec

from apps.gym.redaction.shortening import cut
from apps.gym.storable import find_unstorable


def find_draft_problem(draft: Mapping[str, Any]) -> str:
    """Return why the draft is invalid, or an empty string. Fields may be missing."""
    for name, value in draft.items():
        if name not in _TYPES:
            return f"Unknown draft field “{cut(str(name), 50)}”. Fields: {', '.join(_TYPES)}."
        if not _fits(name, value):
            return f"The draft field “{name}” has the wrong type."
    return "" if find_unstorable(dict(draft)) is None else "The draft contains text that cannot be stored."


def read_draft(draft: object) -> dict[str, Any]:
    """Return the valid fields of a draft."""
    given = draft if isinstance(draft, dict) else {}
    return {name: given[name] for name in _TYPES if name in given and _fits(name, given[name])}


def draft_as_text(draft: Mapping[str, Any]) -> str:
    """Return the draft as text to copy. Empty if it has no answers."""
    answer = read_draft(dict(draft))
    lines = [("verdict", answer.get("choice")), ("ranks", _join(answer.get("ranks")))]
    lines += list((answer.get("scores") or {}).items())
    lines += [
        ("reasons", _join(answer.get("reasons"))),
        ("confidence", answer.get("confidence")),
        ("note", (answer.get("note") or "").strip()),
    ]
    return "\n".join(f"{name}: {value}" for name, value in lines if value not in (None, ""))


def _join(values: list[Any] | None) -> str:
    return ", ".join(map(str, values)) if values and any(values) else ""


def _fits(name: str, value: object) -> bool:
    try:
        msgspec.convert(value, _TYPES[name])
    except msgspec.ValidationError:
        return False
    return True


_TYPES: dict[str, Any] = {
    "choice": str,
    "ranks": list[int],
    "scores": dict[Any, str | bool | int | float | None],
    "reasons": list[str],
    "confidence": int | None,
    "note": str,
}
