"""Environments of one turn: no tools, no words in between; what the policy model replies is the attempt."""

from typing import Any, ClassVar, NoReturn

from apps.gym.environments.protocol import unknown_tool
from apps.gym.traces.items import Item, TaskRow, Tool


class SingleTurn:
    """What such environments share. Each adds its name, description, `needs` and `verify`."""

    tools: ClassVar[list[Tool]] = []
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> NoReturn:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None
