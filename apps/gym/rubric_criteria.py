"""The criteria of a rubric, and the valid answers to them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apps.gym.redaction.shortening import cut
from apps.gym.storable import find_unstorable, is_number

KINDS = ("numeric", "boolean", "category", "text")
MAX_CRITERIA = 30
MAX_CHOICES = 20
MAX_TEXT = 4_000
MAX_NUMBER = 2**53
"""Maximum absolute score: integers up to here are exact in every JSON reader."""

_COMMON = {"key", "label", "kind", "help", "required"}
_OWN = {"numeric": {"minimum", "maximum", "step"}, "boolean": set(), "category": {"choices"}, "text": set()}

Criterion = dict[str, Any]


def find_criteria_problem(criteria: object) -> str:
    """Return why this is not a valid list of criteria, or an empty text."""
    if not isinstance(criteria, list) or not 1 <= len(criteria) <= MAX_CRITERIA:
        return f"Give a list of 1 to {MAX_CRITERIA} criteria."
    keys: set[str] = set()
    for number, criterion in enumerate(criteria, start=1):
        problem = next(_problems(criterion), "") if isinstance(criterion, dict) else "is not an object"
        if problem:
            return f"Criterion {number} {problem}."
        if criterion["key"] in keys:
            return f"Criterion {number} repeats the key “{criterion['key']}”."
        keys.add(criterion["key"])
    return ""


def check_scores(criteria: Sequence[Criterion], scores: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the scores to store, and problems by key. Missing scores are left out."""
    by_key = {str(each["key"]): each for each in criteria}
    wrong = {cut(str(key), 64): "The rubric has no such criterion." for key in scores if key not in by_key}
    clean: dict[str, Any] = {}
    for key, criterion in by_key.items():
        value = scores.get(key)
        if value is None or value == "":
            if criterion.get("required", criterion["kind"] != "text"):
                wrong[key] = "This is required."
            continue
        problem, stored = _read(criterion, value)
        if problem:
            wrong[key] = problem
        else:
            clean[key] = stored
    return clean, wrong


def score_level(criterion: Criterion) -> str:
    """Return the scale of measurement of the scores: `interval`, `nominal`, or an empty text for free text."""
    return {"numeric": "interval", "boolean": "nominal", "category": "nominal"}.get(str(criterion["kind"]), "")


def _problems(criterion: Criterion) -> Iterator[str]:
    """Yield problems in order. Later checks rely on earlier ones, so only the first one counts."""
    kind, key, label = criterion.get("kind"), criterion.get("key"), criterion.get("label")
    if kind not in KINDS:
        yield f"has none of the kinds {', '.join(KINDS)}"
    if unknown := sorted(set(criterion) - _COMMON - _OWN.get(str(kind), set())):
        yield f"of kind {kind} has an unknown setting “{cut(str(unknown[0]), 50)}”"
    if not isinstance(key, str) or not key.isascii() or not key.isidentifier() or len(key) > 64:
        yield "needs a key of letters, digits and underscores, at most 64"
    if not isinstance(label, str) or not 1 <= len(label.strip()) <= 200:
        yield "needs a label of at most 200 characters"
    if not isinstance(criterion.get("help", ""), str) or len(criterion.get("help", "")) > 2_000:
        yield "has a help that is not text of at most 2,000 characters"
    if not isinstance(criterion.get("required", True), bool):
        yield "is required or not: true or false"
    if find_unstorable(criterion) is not None:
        yield "contains a value that cannot be stored"
    own = {"numeric": _problem_of_range, "category": _problem_of_choices}.get(str(kind), lambda _: "")(criterion)
    if own:
        yield own


def _problem_of_range(criterion: Criterion) -> str:
    low, high, step = criterion.get("minimum"), criterion.get("maximum"), criterion.get("step", 1)
    if not all(is_number(each) for each in (low, high, step)):
        return "needs a minimum and a maximum, and perhaps a step, all finite numbers"
    if max(abs(low), abs(high)) > MAX_NUMBER:  # type: ignore[arg-type]
        return f"needs a minimum and a maximum within ±{MAX_NUMBER:,}"
    if not low < high or not 0 < step <= high - low:  # type: ignore[operator]
        return "needs a minimum below its maximum, and a step between"
    return ""


def _problem_of_choices(criterion: Criterion) -> str:
    choices = criterion.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= MAX_CHOICES:
        return f"needs 2 to {MAX_CHOICES} choices"
    if not all(isinstance(each, str) and 1 <= len(each.strip()) <= 100 for each in choices):
        return "has a choice that is not text of at most 100 characters"
    return "" if len(set(choices)) == len(choices) else "repeats a choice"


def _read(criterion: Criterion, value: object) -> tuple[str, Any]:
    kind = criterion["kind"]
    if kind == "boolean":
        return ("", value) if isinstance(value, bool) else ("This must be true or false.", None)
    if kind == "category":
        found = value in criterion["choices"] if isinstance(value, str) else False
        return ("", value) if found else (f"This must be one of {', '.join(criterion['choices'])}.", None)
    if kind == "text":
        fits = isinstance(value, str) and len(value) <= MAX_TEXT and find_unstorable(value) is None
        return ("", value) if fits else (f"This must be text of at most {MAX_TEXT:,} characters.", None)
    # Rubrics older than this limit may exceed it.
    low, high = max(criterion["minimum"], -MAX_NUMBER), min(criterion["maximum"], MAX_NUMBER)
    if not is_number(value) or not low <= value <= high:
        return f"This must be a number from {low:g} to {high:g}.", None
    return "", value
