"""Judged: no tools; a judge model scores the attempt by a rubric."""

from typing import Any, ClassVar

from apps.gym.builtin.protocol import unknown_tool
from apps.gym.errors import VerifierError
from apps.gym.items import Item, TaskRow, Tool
from apps.gym.judging.judge import Hearing
from apps.gym.judging.scoring import judge_attempt
from apps.gym.rewards import Reward


class Judged:
    name: ClassVar[str] = "judged"
    description: ClassVar[str] = (
        "No tools. A judge model scores the final answer, or the whole trace, by the environment's rubric or the row's "
        "own, or compares it with the row's reference_answer or expected_answer."
    )
    tools: ClassVar[list[Tool]] = []
    needs: ClassVar[frozenset[str]] = frozenset()
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = True

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        raise VerifierError("only a judge model can score this environment's attempts")

    async def judge(self, response: dict[str, Any], hearing: Hearing) -> Reward:
        return await judge_attempt(self.row, response, hearing)
