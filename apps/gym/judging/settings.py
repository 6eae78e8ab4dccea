"""How an environment's judge is asked: the JSON that stands beside its rubric."""

from typing import Any, Literal

import msgspec

from apps.gym.judging.scale import Scale

_OURS = frozenset({"input", "model", "stream", "text", "tools", "tool_choice", "instructions", "n"})


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tries` bounds how often one verdict is asked for, `max_characters` each text that the judge reads.

    `structured_output` off leaves the schema to the prompt, for servers that refuse one.
    """

    scale: Scale = Scale()
    reads: Literal["answer", "trace"] = "answer"
    tries: int = 3
    structured_output: bool = True
    max_characters: int = 60_000
    sampling: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 10:
            raise ValueError("`tries` must be from 1 to 10")
        if not 200 <= self.max_characters <= 2_000_000:
            raise ValueError("`max_characters` must be from 200 to 2,000,000")
        taken = sorted(_OURS & set(self.sampling))
        if taken:
            raise ValueError(f"`sampling` cannot set {', '.join(taken)}")


def read_settings(given: object) -> JudgeSettings:
    """Raises ValueError with a sentence that names the field."""
    return msgspec.convert(given, JudgeSettings)
