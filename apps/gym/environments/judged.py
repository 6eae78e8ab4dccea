"""Judged: no tools; a judge model scores the attempt by a rubric."""

from typing import Any, ClassVar

from apps.gym.environments.single_turn import SingleTurn
from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judgement
from apps.gym.judging.judge_scoring import judge_attempt
from apps.gym.rewards import Reward


class Judged(SingleTurn):
    name: ClassVar[str] = "judged"
    description: ClassVar[str] = (
        "No tools. A judge model scores the final answer, or the whole trace, by the environment's rubric or the row's "
        "own, or compares it with the row's reference_answer or expected_answer."
    )
    needs: ClassVar[frozenset[str]] = frozenset()
    asks_judge: ClassVar[bool] = True

    def verify(self, response: dict[str, Any]) -> Reward:
        raise VerifierError("only a judge model can score this environment's attempts")

    async def judge(self, response: dict[str, Any], judgement: Judgement) -> Reward:
        return await judge_attempt(self.row, response, judgement)
