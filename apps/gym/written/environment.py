"""The base class of custom environments: tools, the state of one attempt, and the verifier."""

import random
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import msgspec

from apps.gym.answer_texts import extract_answer
from apps.gym.environments.task_generation import Call, Case, Difficulty, Kit, Move, Seen
from apps.gym.errors import EnvironmentFault, GymError
from apps.gym.rewards import Reward
from apps.gym.traces.items import (
    Item,
    TaskRow,
    Tool,
    assistant_text,
    call_arguments,
    dump_json,
    function_calls,
    last_assistant_text,
)
from apps.gym.written.typed_tools import WrittenTool, describe_tool

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Stopped(Exception):
    """Raised if custom code raised an error that would have ended the process."""


def tell(problem: BaseException) -> str:
    """Return its type and message on one line."""
    if isinstance(problem, Stopped):
        return str(problem)
    try:
        said = str(problem).encode(errors="replace").decode()
    except Exception:
        said = "its message cannot be read"
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__


def guard(work: Callable[Given, Result], name: str, kind: type) -> Callable[Given, Result]:
    """Return a function that raises only EnvironmentFault with this name, also for a result of another type."""

    @wraps(work)
    def guarded(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            result = work(*given, **named)
        except GymError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as problem:
            raise EnvironmentFault(f"{name}: {tell(problem)}").permanent() from problem
        if not isinstance(result, kind):
            raise EnvironmentFault(f"{name}: returned {type(result).__name__}, expected {kind.__name__}").permanent()
        return result

    return guarded


class Attempted(msgspec.Struct, frozen=True):
    """A finished attempt. `response` is its Responses object; the properties are derived from it."""

    response: dict[str, Any]

    @property
    def items(self) -> list[Item]:
        """Return the items after the prompt in order: messages, reasoning, calls and their outputs."""
        items: list[Item] = self.response["output"]
        return items

    @property
    def text(self) -> str:
        """Return the text of all assistant messages, joined by newlines."""
        return assistant_text(self.items)

    @property
    def last_message(self) -> str:
        return last_assistant_text(self.items)

    @property
    def answer(self) -> str:
        """Return the content of the last box, else the last line without a label like "Answer:"; else empty."""
        return extract_answer(self.last_message) or ""

    @property
    def calls(self) -> list[Call]:
        """Return the tool calls in order. Arguments that are not a JSON object remain text."""
        return [
            Call(str(item.get("name", "")), _arguments(item.get("arguments"))) for item in function_calls(self.items)
        ]


def _arguments(given: object) -> dict[str, Any] | str:
    read = call_arguments({"arguments": given}) if given else None
    return str(given) if read is None else read


Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_is_tool_of_an_environment"


def tool(method: Method) -> Method:
    """Make a method a tool.

    Models see its name, its docstring and the types of its arguments.

    It returns text, or any JSON value. `ToolRefused` tells the model what it did wrong. A method that is not `async
    def` runs in a thread, so it may block.
    """
    setattr(method, _MARK, True)
    return method


class Environment:
    """An environment.

    Each attempt has its own object, whose attributes are the attempt's state.

    The class's name in snake case is the environment's name, its docstring the description. `needs` names the row
    fields that `verify` reads.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    tools: ClassVar[list[Tool]] = []
    verify_needs_state: ClassVar[bool] = True
    """True if `verify` reads state that tools or `seed` left on `self`.

    If it does not, set False: stored attempts can then be verified again without replaying.
    """
    asks_judge: ClassVar[bool] = False
    max_steps: ClassVar[int] = 30
    written_tools: ClassVar[dict[str, WrittenTool]] = {}
    problem: ClassVar[str] = ""
    """Why the class cannot be used, with the line of its file, or an empty text."""

    row: TaskRow

    def __init_subclass__(cls, **given: Any) -> None:
        """Register the tools. Problems are recorded, not raised, because other classes of the file may be valid."""
        super().__init_subclass__(**given)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "description" not in cls.__dict__:
            cls.description = " ".join((cls.__doc__ or "").split())
        cls.needs = frozenset(cls.needs)
        found = [getattr(cls, name) for name in dir(cls) if hasattr(getattr(cls, name), _MARK)]
        # In the order of their lines in the file.
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
        """Prepare the attempt's state from the task's row, before the first call.

        All randomness must come from `seed`.
        """

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """Return the environment's next messages after a reply without calls, or None when the attempt is over."""
        return None

    async def verify(self, attempt: Attempted) -> float | Reward:
        raise NotImplementedError(f"{type(self).__name__} has no verify")

    async def close(self) -> None:
        """Clean up after the attempt, however it ended."""

    # ── optional: tasks by seed ──

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
        """Return the kit, or None if the class makes no tasks or has no solver.

        Errors of its functions become an EnvironmentFault with their name.
        """
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
        """Return the class's own cases. Raises EnvironmentFault if `cases` does not return a list."""
        return guard(cls.cases, f"{cls.name}: cases", list)()
