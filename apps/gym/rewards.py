"""What a verifier gives."""

import math
from typing import Any

import msgspec

from apps.gym.errors import VerifierError


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """A finite score, usually 0.0–1.0, with named components and a sentence that explains it to a reader.

    `value` is None only where the environment verifies nothing (its rollouts are left to people).
    """

    value: float | None
    components: dict[str, float] = {}
    explanation: str = ""
    details: dict[str, Any] = {}

    def __post_init__(self) -> None:
        numbers = [*self.components.values(), *([] if self.value is None else [self.value])]
        if not all(math.isfinite(number) for number in numbers):
            raise VerifierError(f"the verifier gave a reward that is not finite: {self.value} {self.components}")
