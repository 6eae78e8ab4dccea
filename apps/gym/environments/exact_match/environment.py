"""Exact match: no tools; the answer is compared with the expected one."""

from typing import Any, ClassVar

from apps.gym.environments.single_turn import SingleTurn
from apps.gym.rewards import Reward
from apps.gym.verifiers.text.exact_match import verify_exact_match


class ExactMatch(SingleTurn):
    name: ClassVar[str] = "exact_match"
    description: ClassVar[str] = (
        "No tools. The boxed answer, else the last line, must equal the row's expected_answer after normalisation."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer"})

    def verify(self, response: dict[str, Any]) -> Reward:
        return verify_exact_match(self.row, response)
