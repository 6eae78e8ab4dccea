"""Exact match: no tools; the answer is compared with the expected one."""

from typing import Any, ClassVar

from apps.gym.builtin.protocol import unknown_tool
from apps.gym.items import Item, TaskRow, Tool
from apps.gym.rewards import Reward
from apps.gym.verifiers.exact_match import verify_exact_match


class ExactMatch:
    name: ClassVar[str] = "exact_match"
    description: ClassVar[str] = (
        "No tools. The boxed answer, else the last line, must equal the row's expected_answer after normalisation."
    )
    tools: ClassVar[list[Tool]] = []
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer"})
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
        return verify_exact_match(self.row, response)
