"""The class that an environment is: its tools, the state of one attempt, and its verifier."""

import random
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json
from apps.gym.written.attempts import Attempted
from apps.gym.written.operator_errors import guard
from apps.gym.written.typed_tools import WrittenTool, describe_tool

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_is_tool_of_an_environment"


def tool(method: Method) -> Method:
    """Makes a method a tool: models see its name, its docstring and the types of its arguments.

    It gives a text, or anything that JSON has. `ToolRefused` says to the model what it did wrong. One that is no `async
    def` runs in a thread, so it may wait for what it calls.
    """
    setattr(method, _MARK, True)
    return method


class Environment:
    """One object is one attempt; what the methods keep on `self` is its state.

    The class's name in small letters is the environment's name, its docstring the description. `needs` names the
    fields of a task's row that `verify` reads.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    tools: ClassVar[list[Tool]] = []
    verify_needs_state: ClassVar[bool] = True
    """Whether `verify` reads what the tools or `seed` left on `self`. Where it does not, say False: then what is stored
    can be verified again without doing it again."""
    asks_judge: ClassVar[bool] = False
    max_steps: ClassVar[int] = 30
    written_tools: ClassVar[dict[str, WrittenTool]] = {}
    problem: ClassVar[str] = ""
    """Why the class cannot be used, with the line of its file; or nothing."""

    row: TaskRow

    def __init_subclass__(cls, **given: Any) -> None:
        """A tool that no model could be told of is no error yet: a file may hold other classes, which are well."""
        super().__init_subclass__(**given)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "description" not in cls.__dict__:
            cls.description = " ".join((cls.__doc__ or "").split())
        cls.needs = frozenset(cls.needs)
        found = [getattr(cls, name) for name in dir(cls) if hasattr(getattr(cls, name), _MARK)]
        # In the order of the file, which is that of their lines.
        found.sort(key=lambda method: method.__code__.co_firstlineno)
        cls.written_tools, problems = {}, []
        for method in found:
            try:
                cls.written_tools[method.__name__] = describe_tool(method)
            except TypeError as problem:
                problems.append(f"line {method.__code__.co_firstlineno}: {problem}")
        cls.problem = "; ".join(problems)
        cls.tools = [written.tool for written in cls.written_tools.values()]

    async def seed(self, row: TaskRow, seed: int) -> None:
        """Before the first call: makes the attempt's state from the task's row. All chance comes from `seed`."""

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """After a reply without calls: what the environment says next, or None when the attempt is over."""
        return None

    async def verify(self, attempt: Attempted) -> float | Reward:
        raise NotImplementedError(f"{type(self).__name__} has no verify")

    async def close(self) -> None:
        """After the attempt, however it ended."""

    # ── tasks by seed, for those that want them ──

    @staticmethod
    def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
        raise NotImplementedError

    @staticmethod
    def solve(seen: Seen) -> Move:
        raise NotImplementedError

    @staticmethod
    def cases() -> list[Case]:
        return []

    @classmethod
    def kit(cls) -> Kit | None:
        """None where the class makes no tasks, or nobody solves them. What its functions raise is an EnvironmentFault
        that names them."""
        if cls.make_task is Environment.make_task or cls.solve is Environment.solve:
            return None
        return Kit(
            make_task=guard(cls._make_row, f"{cls.name}: make_task", dict),
            solve=guard(cls.solve, f"{cls.name}: solve", Move),
            cases=cls.own_cases,
            max_steps=cls.max_steps,
        )

    @classmethod
    def _make_row(cls, dice: random.Random, difficulty: Difficulty) -> TaskRow:
        row = cls.make_task(dice, difficulty)
        if isinstance(row, dict):
            dump_json(row["responses_create_params"])
        return row

    @classmethod
    def own_cases(cls) -> list[Case]:
        """Raises EnvironmentFault where `cases` gives none."""
        return guard(cls.cases, f"{cls.name}: cases", list)()
