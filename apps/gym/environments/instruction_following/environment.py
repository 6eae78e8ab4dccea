"""Instruction following: no tools; the last message must follow every instruction without padding."""

import re
from typing import Any, ClassVar

from apps.gym.environments.protocol import BuiltinEnvironment
from apps.gym.rewards import Reward
from apps.gym.traces.items import assistant_text
from apps.gym.verifiers.instructions.instruction_constraints import Instructions

_FEW = 40
"""Words up to which a text is not checked, because a short text may repeat words."""
_VARIED = 0.3


class InstructionFollowing(BuiltinEnvironment):
    """Padding by repetition satisfies length and keyword checks.

    In texts of more than 40 words, at least 3 of 10 words must be different, in each stretch of 100 words.
    """

    name: ClassVar[str] = "instruction_following"
    description: ClassVar[str] = (
        "No tools. The last message must follow all instructions of the row's instruction_id_list and kwargs. If "
        "grading_mode is fraction, the reward is the share of instructions followed. Text padded to reach a length "
        "gets 0."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"instruction_id_list"})
    runs_on_loop: ClassVar[bool] = False

    def verify(self, response: dict[str, Any]) -> Reward:
        followed = Instructions().verify(self.row, response)
        varied = is_varied(assistant_text(list(response.get("output") or [])))
        return Reward(
            value=(followed.value or 0.0) * varied,
            components={**followed.components, "varied": float(varied)},
            explanation=followed.explanation + ("" if varied else "; the same words over and over"),
            details=followed.details,
        )


def is_varied(text: str) -> bool:
    words = re.findall(r"\w+", text.lower())
    stretches = [words[at : at + 100] for at in range(0, len(words), 100)]
    return all(len(set(one)) >= _VARIED * len(one) for one in stretches if len(one) > _FEW)
