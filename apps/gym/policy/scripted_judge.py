"""How the scripted policy model judges: no language model, only whether the reference answer is in the attempt."""

import re
from typing import Any

from apps.gym.items import dump_json, text_of
from apps.gym.policy.protocol import VERDICT_SCHEMA, Ask

_SECTION = re.compile(r"^<(\w+)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>$", re.DOTALL | re.MULTILINE)
_RANGE = re.compile(r"from (\S+) \(worst\) to (\S+) \(best\)")
_LONG = 400  # characters from which an answer counts as complete where no reference tells


def is_asked_to_judge(ask: Ask) -> bool:
    return bool(ask.sampling) and _format(ask).get("name") == VERDICT_SCHEMA


def judge_by_rule(ask: Ask) -> str:
    """An answer that fits the schema asked for. The same texts always get the same verdict."""
    parts = {name: text for item in ask.items for name, _, text in _SECTION.findall(text_of(item))}
    properties = _format(ask)["schema"]["properties"]
    key, kind = next((key, kind) for key, kind in properties.items() if key != "explanation")
    reference = parts.get("reference", "")
    if key == "winner":
        first, second = _merit(parts.get("first", ""), reference), _merit(parts.get("second", ""), reference)
        verdict: Any = "tie" if first == second else "first" if first > second else "second"
        why = "by which of the two holds the reference, or is longer"
    else:
        merit = _merit(parts.get("attempt", ""), reference)
        verdict = _place(merit, kind)
        why = "the reference is in it" if reference and merit else "the reference is not in it"
        why = why if reference else "no reference was given, so its length decides"
    return dump_json({"explanation": f"Scripted, no LLM: {why}.", key: verdict})


def _merit(attempt: str, reference: str) -> float:
    """From 0.0 to 1.0."""
    if reference:
        # As a whole word: 4 is not in 42.
        wanted = rf"(?<!\w){re.escape(reference.strip().casefold())}(?!\w)"
        return float(re.search(wanted, attempt.casefold()) is not None)
    return min(1.0, len(attempt.strip()) / _LONG)


def _place(merit: float, kind: dict[str, Any]) -> str | float:
    if "enum" in kind:  # from best to worst, as people write them down
        names: list[str] = kind["enum"]
        return names[round((1.0 - merit) * (len(names) - 1))]
    found = _RANGE.search(kind.get("description", ""))
    low, high = (float(found[1]), float(found[2])) if found else (0.0, 1.0)
    return low + merit * (high - low)


def _format(ask: Ask) -> dict[str, Any]:
    text = ask.sampling.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return form if isinstance(form, dict) else {}
