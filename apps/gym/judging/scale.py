"""What a judge may answer, and which reward that is."""

import math
from typing import Any

import msgspec

from apps.gym.redaction.shortening import cut, shorten

MAX_EXPLANATION = 8_000
"""Characters of a judge's explanation that are kept; the reply itself is kept whole."""


class VerdictUnreadable(Exception):
    """The judge's answer holds no verdict on its scale; the message says why, for the judge to read."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge found. `said` is its own word or number, `value` the reward that this is."""

    said: str | float
    value: float
    explanation: str = ""


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers from `low` to `high`, which become rewards from 0.0 to 1.0; or named `verdicts` with a reward each."""

    low: float = 0.0
    high: float = 10.0
    verdicts: dict[str, float] = {}

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError("`low` must be below `high`")
        if not all(math.isfinite(number) for number in (self.low, self.high, *self.verdicts.values())):
            raise ValueError("a scale is made of finite numbers")
        names = [name.strip().lower() for name in self.verdicts]
        if len(names) == 1 or "" in names or len(set(names)) < len(names):
            raise ValueError("`verdicts` needs two or more different names")

    @property
    def key(self) -> str:
        return "verdict" if self.verdicts else "score"

    def describe(self) -> str:
        if self.verdicts:
            return f"one of {', '.join(self.verdicts)}"
        return f"a number from {self.low:g} (worst) to {self.high:g} (best)"

    def schema(self) -> dict[str, Any]:
        # Without minimum and maximum: some providers refuse a strict schema that has them.
        kind: dict[str, Any] = {"type": "string", "enum": list(self.verdicts)} if self.verdicts else {"type": "number"}
        return verdict_schema(self.key, {**kind, "description": self.describe()})

    def read(self, answer: dict[str, Any]) -> Verdict:
        """The verdict in a judge's object. Raises VerdictUnreadable."""
        if self.key not in answer:
            raise VerdictUnreadable(f"the object has no `{self.key}`")
        given, explanation = answer[self.key], read_explanation(answer)
        if self.verdicts:
            name = read_choice(given, list(self.verdicts))
            return Verdict(said=name, value=self.verdicts[name], explanation=explanation)
        score = _number(given)
        if score is None:
            raise VerdictUnreadable(f"`score` must be {self.describe()}, not {_excerpt(given)}")
        if not self.low <= score <= self.high:
            raise VerdictUnreadable(f"`score` must be {self.describe()}; {_excerpt(given)} is outside of that")
        return Verdict(said=score, value=(score - self.low) / (self.high - self.low), explanation=explanation)


def verdict_schema(key: str, kind: dict[str, Any]) -> dict[str, Any]:
    """The explanation comes before the verdict: a model that writes in this order has thought before it judges.

    The mark's value is no part of it: a server that compiles schemas compiles this one once.
    """
    return {
        "type": "object",
        "properties": {"mark": {"type": "string"}, "explanation": {"type": "string"}, key: kind},
        "required": ["mark", "explanation", key],
        "additionalProperties": False,
    }


def read_choice(given: object, names: list[str]) -> str:
    """The name that was meant, whatever its case. Raises VerdictUnreadable."""
    meant = given.strip().lower() if isinstance(given, str) else None
    for name in names:
        if name.strip().lower() == meant:
            return name
    raise VerdictUnreadable(f"{_excerpt(given)} is not one of {', '.join(names)}")


def read_explanation(answer: dict[str, Any]) -> str:
    explanation = answer.get("explanation")
    if not isinstance(explanation, str):
        return ""
    # JSON can escape half a surrogate pair, which nothing stores.
    return cut(explanation, MAX_EXPLANATION).encode(errors="replace").decode().strip()


def _number(given: object) -> float | None:
    if isinstance(given, str):
        try:
            given = float(given[:100])
        except ValueError:
            return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _excerpt(given: object) -> str:
    text = repr(given)
    return shorten(text, 80)
