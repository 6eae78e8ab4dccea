"""Instruction following: no tools; the last message must follow every instruction, in words that are not padding."""

import re
from typing import Any, ClassVar

from apps.gym.environments.single_turn import SingleTurn
from apps.gym.rewards import Reward
from apps.gym.traces.items import assistant_text
from apps.gym.verifiers.instructions.instruction_constraints import Instructions

_FEW = 40
"""Shorter texts may well say a word often."""
_VARIED = 0.3


class InstructionFollowing(SingleTurn):
    """Length and keywords are cheap to fake by one word over and over: texts of more than forty words must have a
    different word in three of ten, over each stretch of a hundred."""

    name: ClassVar[str] = "instruction_following"
    description: ClassVar[str] = (
        "No tools. The last message must follow every instruction of the row's instruction_id_list and kwargs, or a "
        "part of them where its grading_mode is fraction; a text that pads is worth nothing."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"instruction_id_list"})
    quick: ClassVar[bool] = False

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
