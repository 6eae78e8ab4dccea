"""The answers that a judge may give, and their rewards."""

import math
from typing import Any, Literal

import msgspec

from apps.gym.redaction.shortening import cut, shorten
from apps.gym.wires.dialect import FIXED

MAX_EXPLANATION = 8_000
"""Maximum characters kept of a judge's explanation. The reply itself is kept whole."""


class VerdictUnreadable(Exception):
    """Raised if the judge's answer contains no valid verdict. The message explains the problem to the judge."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict. `said` is its word or number, `value` the resulting reward."""

    said: str | float
    value: float
    explanation: str = ""


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers from `low` to `high`, scaled to rewards from 0.0 to 1.0; or named `verdicts` with a reward each."""

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
        # Without minimum and maximum, because some providers reject strict schemas that have them.
        kind: dict[str, Any] = {"type": "string", "enum": list(self.verdicts)} if self.verdicts else {"type": "number"}
        return verdict_schema(self.key, {**kind, "description": self.describe()})

    def read(self, answer: dict[str, Any]) -> Verdict:
        """Return the verdict in a judge's object. Raises VerdictUnreadable."""
        given, explanation = find_answer(answer, self.key), read_explanation(answer)
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
    """Return the schema of an answer.

    The explanation comes first, so that the model reasons before its verdict.

    The value of the mark is not in the schema, so that servers compile the schema only once.
    """
    return closed_object(mark={"type": "string"}, explanation={"type": "string"}, **{key: kind})


def closed_object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def find_answer(answer: dict[str, Any], key: str) -> Any:
    if key not in answer:
        raise VerdictUnreadable(f"the object has no `{key}`")
    return answer[key]


def read_choice(given: object, names: list[str]) -> str:
    """Return the chosen name, ignoring case. Raises VerdictUnreadable."""
    meant = given.strip().lower() if isinstance(given, str) else None
    for name in names:
        if name.strip().lower() == meant:
            return name
    raise VerdictUnreadable(f"{_excerpt(given)} is not one of {', '.join(names)}")


def read_explanation(answer: dict[str, Any]) -> str:
    explanation = answer.get("explanation")
    if not isinstance(explanation, str):
        return ""
    # JSON can escape half a surrogate pair, which cannot be stored.
    return cut(explanation, MAX_EXPLANATION).encode(errors="replace").decode().strip()


def _number(given: Any) -> float | None:
    try:
        number = float(given[:100] if isinstance(given, str) else given)
    except (ValueError, TypeError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(given, bool) else None


def _excerpt(given: object) -> str:
    return shorten(repr(given), 80)


_OURS = FIXED | {"stream", "text", "tool_choice"}


class Worth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rewards of an answer compared with the expected one: better, equally good, worse."""

    win: float = 1.0
    tie: float = 0.5
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.win, self.tie, self.loss)):
            raise ValueError("`worth` is made of finite numbers")


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The question to the judge, and how its answer becomes a reward.

    `question`: `score` rates an attempt on the `scale`; `compare` asks whether its answer or the expected one is
    better, which gives its `worth`; `equal` asks whether the two are equal, which gives 1.0 or 0.0.

    The last two are asked in both orders.

    `tries` limits how often one verdict is requested, `max_characters` limits each text that the judge reads. Without
    `structured_output` the schema is only in the prompt, for servers that reject schemas.
    """

    question: Literal["score", "compare", "equal"] = "score"
    scale: Scale = Scale()
    worth: Worth = Worth()
    reads: Literal["answer", "trace"] = "answer"
    tries: int = 3
    structured_output: bool = True
    max_characters: int = 60_000
    sampling: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.question != "score" and self.reads == "trace":
            raise ValueError("`reads` must be `answer` for comparisons")
        if not 1 <= self.tries <= 10:
            raise ValueError("`tries` must be from 1 to 10")
        if not 200 <= self.max_characters <= 2_000_000:
            raise ValueError("`max_characters` must be from 200 to 2,000,000")
        taken = sorted(_OURS & set(self.sampling))
        if taken:
            raise ValueError(f"`sampling` cannot set {', '.join(taken)}")

    def describe(self) -> str:
        """Return the question in words, for a page."""
        if self.question == "compare":
            worth = f"{self.worth.win:g} for better, {self.worth.tie:g} for a tie, {self.worth.loss:g} for worse"
            return f"Is the answer better than the expected answer? {worth}. Judged in both orders."
        if self.question == "equal":
            return "Is the answer equivalent to the expected answer? 1 or 0. Judged in both orders."
        return f"Score: {self.scale.describe()}"


def read_settings(given: object) -> JudgeSettings:
    """Return judge settings. Raises ValueError with a message that names the field."""
    return msgspec.convert(given, JudgeSettings)
