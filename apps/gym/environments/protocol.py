"""What a built-in environment is: one object per attempt, with quick synchronous methods."""

from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

from apps.gym.judging.judge import Judgement
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool
from apps.gym.verifiers.protocol import Verifier


class ToolRefused(Exception):
    """A tool call that cannot be done; `error` is a short name, the message goes back to the policy model."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BuiltinEnvironment(Protocol):
    """One attempt, with synchronous methods."""

    name: ClassVar[str]
    description: ClassVar[str]
    tools: ClassVar[list[Tool]]
    row: TaskRow

    needs: ClassVar[frozenset[str]]
    """The fields of a task's row without which its attempts cannot be verified."""

    quick: ClassVar[bool]
    """Every method takes well under a millisecond, and is called on the event loop; but for verifying attempts of more
    than 100,000 characters. Those of others run in threads, for as long as the environment's time limits allow; making
    one must be quick all the same."""

    asks_judge: ClassVar[bool]
    """Its verifier is a judge model; it is a JudgedEnvironment."""

    def __init__(self, row: TaskRow, *, seed: int) -> None: ...

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """The tool's output as text. Raises ToolRefused; an unknown name is refused as `unknown_tool`."""
        ...

    def respond(self, items: list[Item]) -> list[Item] | None:
        """Observations after a reply without tool calls, or None when the environment is done."""
        ...

    def verify(self, response: dict[str, Any]) -> Reward: ...


class JudgedEnvironment(BuiltinEnvironment, Protocol):
    """One whose `judge` is asked in place of `verify`."""

    async def judge(self, response: dict[str, Any], judgement: Judgement) -> Reward:
        """The reward by what the judge says; what it was asked is kept by the judgement. Lets JudgeError through."""
        ...


@runtime_checkable
class Configured(Protocol):
    """A built-in environment whose verifier is one without code, which is asked in place of `verify`: what may take
    long of it runs in a process that can be stopped."""

    verifier: ClassVar[Verifier]


class Transition(NamedTuple):
    """What a step leads to: what is seen now, which is never empty, and whether that was the end."""

    observation: str
    done: bool


@runtime_checkable
class Game(Protocol):
    """A built-in environment in which each reply of the policy model is a step, as in Gymnasium. Its `verify` plays the
    replies of a response again, so that it needs no more than the row; there is no reward before the end."""

    def reset(self) -> str:
        """What is seen at first. Raises EnvironmentFault for a row that is no game."""
        ...

    def step(self, reply: str) -> Transition: ...


def is_judged(environment: BuiltinEnvironment) -> TypeGuard[JudgedEnvironment]:
    return environment.asks_judge


def unknown_tool(name: str, tools: list[Tool]) -> ToolRefused:
    names = ", ".join(tool["name"] for tool in tools)
    known = f"the tools are: {names}" if names else "this environment has no tools"
    return ToolRefused("unknown_tool", f"there is no tool named {cut(name, 100)!r}; {known}")
