"""Multiple choice: no tools; the letter in the last box must be the right one."""

from typing import Any, ClassVar

from apps.gym.builtin.protocol import unknown_tool
from apps.gym.items import Item, TaskRow, Tool
from apps.gym.rewards import Reward
from apps.gym.verifiers.multiple_choice import MultipleChoice
from apps.gym.verifiers.protocol import Verifier


class Mcqa:
    name: ClassVar[str] = "mcqa"
    description: ClassVar[str] = (
        "No tools. The letter in the last box must be the row's expected_answer, one of its options. Generated tasks "
        "have sixteen options, so that guessing is worth 1/16."
    )
    tools: ClassVar[list[Tool]] = []
    verifier: ClassVar[Verifier] = MultipleChoice()
    needs: ClassVar[frozenset[str]] = verifier.needs
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        return self.verifier.verify(self.row, response)
