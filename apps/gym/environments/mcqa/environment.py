"""Multiple choice: no tools; the letter in the last box must be the right one."""

from typing import Any, ClassVar

from apps.gym.environments.single_turn import SingleTurn
from apps.gym.rewards import Reward
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.text.multiple_choice import MultipleChoice


class Mcqa(SingleTurn):
    name: ClassVar[str] = "mcqa"
    description: ClassVar[str] = (
        "No tools. The letter in the last box must be the row's expected_answer, one of its options. Generated tasks "
        "have sixteen options, so that guessing is worth 1/16."
    )
    verifier: ClassVar[Verifier] = MultipleChoice()
    needs: ClassVar[frozenset[str]] = verifier.needs

    def verify(self, response: dict[str, Any]) -> Reward:
        return self.verifier.verify(self.row, response)
