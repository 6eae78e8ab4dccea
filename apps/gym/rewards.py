"""Rewards of verifiers."""

import math
from typing import Any

import msgspec

from apps.gym.errors import VerifierError

MAX_REWARD = 1e100
"""Maximum absolute value of a reward or component. The squares of much larger values overflow in statistics."""

REWARD_BOUNDS = f"a number from -{MAX_REWARD:g} to {MAX_REWARD:g}"


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """A finite score, usually 0.0–1.0, with named components and an explanation in one sentence.

    `value` is None only if there is no verifier. `details` may have anything that explains the reward, as JSON.
    """

    value: float | None
    components: dict[str, float] = {}
    explanation: str = ""
    details: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.explanation.isascii():
            # JSON may contain lone surrogates, which databases reject.
            msgspec.structs.force_setattr(self, "explanation", self.explanation.encode(errors="replace").decode())
        for number in (self.value or 0.0, *self.components.values()):
            if not -MAX_REWARD <= number <= MAX_REWARD:
                beyond = f"beyond ±{MAX_REWARD:g}" if math.isfinite(number) else "that is not finite"
                raise VerifierError(f"the verifier gave a reward {beyond}: {self.value} {self.components}")
