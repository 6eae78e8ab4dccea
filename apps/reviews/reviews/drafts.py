"""Drafts of reviews: validated before they are saved, and read tolerantly."""

from collections.abc import Callable, Mapping
from typing import Any

from apps.gym.redaction.shortening import cut
from apps.gym.storable import find_unstorable


def find_draft_problem(draft: Mapping[str, Any]) -> str:
    """Return why a work page could not show the draft; empty if it can. Missing fields are not written yet."""
    for name, value in draft.items():
        if name not in _FITS:
            return f"Unknown draft field “{cut(str(name), 50)}”. Fields: {', '.join(_FITS)}."
        if not _FITS[name](value):
            return f"The draft field “{name}” has the wrong type."
    return "" if find_unstorable(dict(draft)) is None else "The draft contains text that cannot be stored."


def read_draft(draft: object) -> dict[str, Any]:
    """Return the valid fields; others are dropped."""
    given = draft if isinstance(draft, dict) else {}
    return {name: given[name] for name, fits in _FITS.items() if name in given and fits(given[name])}


def tell_draft(draft: Mapping[str, Any]) -> str:
    """Return the draft as text to copy; empty if it has no answers."""
    said = read_draft(dict(draft))
    lines = [("verdict", said.get("choice")), ("ranks", _join(said.get("ranks")))]
    lines += list((said.get("scores") or {}).items())
    lines += [
        ("reasons", _join(said.get("reasons"))),
        ("confidence", said.get("confidence")),
        ("note", (said.get("note") or "").strip()),
    ]
    return "\n".join(f"{name}: {value}" for name, value in lines if value not in (None, ""))


def _join(values: list[Any] | None) -> str:
    return ", ".join(map(str, values)) if values and any(values) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_scores(value: object) -> bool:
    return isinstance(value, dict) and all(
        one is None or isinstance(one, str | int | float | bool) for one in value.values()
    )


_FITS: dict[str, Callable[[object], bool]] = {
    "choice": _is_text,
    "ranks": _are_numbers,
    "scores": _are_scores,
    "reasons": _are_texts,
    "confidence": lambda value: value is None or _is_number(value),
    "note": _is_text,
}
