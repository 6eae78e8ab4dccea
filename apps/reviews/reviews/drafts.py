"""What a reviewer has written so far of an answer: checked before it is kept, and read whatever was kept before."""

from collections.abc import Callable, Mapping
from typing import Any

from apps.gym.redaction.shortening import cut
from apps.gym.storable import find_unstorable


def find_draft_problem(draft: Mapping[str, Any]) -> str:
    """Why a work page could not show it; empty where it could. What is missing is not written yet."""
    for name, value in draft.items():
        if name not in _FITS:
            return f"A draft has {', '.join(_FITS)}, and no “{cut(str(name), 50)}”."
        if not _FITS[name](value):
            return f"“{name}” of a draft is not like that of an answer."
    return "" if find_unstorable(dict(draft)) is None else "A draft holds text that can be stored."


def read_draft(draft: object) -> dict[str, Any]:
    """What of it fits; the rest is as if it had not been written."""
    given = draft if isinstance(draft, dict) else {}
    return {name: given[name] for name, fits in _FITS.items() if name in given and fits(given[name])}


def tell_draft(draft: Mapping[str, Any]) -> str:
    """In lines, to be copied; empty where it says nothing."""
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
