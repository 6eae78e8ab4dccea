"""How an environment's judge is asked: the JSON that stands beside its rubric."""

import math
from typing import Any, Literal

import msgspec

from apps.gym.judging.scale import Scale
from apps.gym.wires.dialect import FIXED

_OURS = FIXED | {"stream", "text", "tool_choice"}


class Worth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rewards of an answer that is compared with the expected one: better, as good, worse."""

    win: float = 1.0
    tie: float = 0.5
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.win, self.tie, self.loss)):
            raise ValueError("`worth` is made of finite numbers")


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`question`: `score` places an attempt on the `scale`; `compare` asks whether its answer or the expected one is
    better, which gives its `worth`; `equal` asks whether the two say the same: 1.0 or 0.0. The last two are asked in
    both orders.

    `tries` bounds how often one verdict is asked for, `max_characters` each text that the judge reads.
    `structured_output` off leaves the schema to the prompt, for servers that refuse one.
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
            raise ValueError("`reads` must be `answer` where it is compared with the expected one")
        if not 1 <= self.tries <= 10:
            raise ValueError("`tries` must be from 1 to 10")
        if not 200 <= self.max_characters <= 2_000_000:
            raise ValueError("`max_characters` must be from 200 to 2,000,000")
        taken = sorted(_OURS & set(self.sampling))
        if taken:
            raise ValueError(f"`sampling` cannot set {', '.join(taken)}")

    def describe(self) -> str:
        """The question in words, for a page."""
        if self.question == "compare":
            worth = f"{self.worth.win:g} if it is, {self.worth.tie:g} if they are even, else {self.worth.loss:g}"
            return f"Is the answer better than the expected one? {worth}; asked in both orders"
        if self.question == "equal":
            return "Does the answer say the same as the expected one? 1 or 0; asked in both orders"
        return f"Which score? {self.scale.describe()}"


def read_settings(given: object) -> JudgeSettings:
    """Raises ValueError with a sentence that names the field."""
    return msgspec.convert(given, JudgeSettings)
