"""The interface of built-in environments: one object per attempt, with synchronous methods."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, item_type
from apps.gym.verifiers.protocol import Verifier


class ToolRefused(Exception):
    """Raised if a tool call is invalid or fails. `error` is a short code. The policy model receives the message."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BuiltinEnvironment:
    """The environment of one attempt. By default it has no tools, and the first reply without tool calls ends it.

    Each tool is a method of the same name, which takes the arguments as a dict and returns text.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    tools: ClassVar[list[Tool]] = []

    needs: ClassVar[frozenset[str]]
    """Fields of a task's row that verification requires."""

    runs_on_loop: ClassVar[bool] = True
    """True if each method takes well under a millisecond, so that it runs on the event loop.

    Otherwise, methods run in threads, within the environment's time limits. `__init__` always runs on the event loop.
    `verify` always runs in a thread for attempts of more than 100,000 characters.
    """

    takes_turns: ClassVar[bool] = False
    """True if the environment may answer a reply without tool calls (`respond`), so that the attempt continues."""

    asks_judge: ClassVar[bool] = False
    """True if verification calls a judge model."""

    verifier: ClassVar[Verifier | None] = None
    """If set, it scores the attempt instead of the method `verify`."""

    @classmethod
    def check_row(cls, row: TaskRow, *, has_judge: bool) -> None:
        """Raise VerifierError or JudgeError if attempts at this row cannot be scored."""

    def __init__(self, row: TaskRow) -> None:
        self.row = row

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the output of the method named like the tool.

        Raises ToolRefused, with `unknown_tool` for an unknown name.
        """
        if all(tool["name"] != name for tool in self.tools):
            raise unknown_tool(name, self.tools)
        output: str = getattr(self, name)(arguments)
        return output

    def respond(self, items: list[Item]) -> list[Item] | None:
        """Return the environment's messages after a reply without tool calls, or None to end the attempt."""
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        """Score the attempt. `response` is a Responses object whose `output` has every item after the prompt."""
        raise NotImplementedError


class Transition(NamedTuple):
    """Result of a step: the observation, never empty, and whether the episode ended."""

    observation: str
    done: bool


def unknown_tool(name: str, tools: list[Tool]) -> ToolRefused:
    """Return the error for a tool that does not exist. It names the tools that do."""
    names = ", ".join(tool["name"] for tool in tools)
    known = f"the tools are: {names}" if names else "this environment has no tools"
    return ToolRefused("unknown_tool", f"there is no tool named {cut(name, 100)!r}; {known}")


def read_single_text(arguments: dict[str, Any], name: str, problem: str) -> str:
    """Return the only argument, a text called `name`. Raises ToolRefused with the message `problem` for others."""
    value = arguments.get(name)
    if not isinstance(value, str) or len(arguments) != 1:
        raise ToolRefused("bad_arguments", problem)
    return value


class RunningGame(Protocol):
    """The state of a running game."""

    def look(self) -> str:
        """Return the first observation."""

    def step(self, reply: str) -> Transition:
        """Apply a reply of the policy model."""


Game = TypeVar("Game", bound=RunningGame)


class TurnBasedGame(BuiltinEnvironment, ABC, Generic[Game]):
    """A built-in environment in which each reply of the policy model is a step, as in Gymnasium.

    `verify` replays the attempt from its replies, so it needs no state of the session.
    """

    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow) -> None:
        super().__init__(row)
        self._game: Game | None = None

    @abstractmethod
    def begin(self) -> Game:
        """Start a game from the row. Raises EnvironmentFault for an invalid row."""

    @abstractmethod
    def score(self, game: Game) -> Reward:
        """Return the reward for the state of the game."""

    def reset(self) -> str:
        """Start the game and return the first observation."""
        self._game = self.begin()
        return self._game.look()

    def step(self, reply: str) -> Transition:
        """Apply a reply of the policy model."""
        self._game = self._game or self.begin()
        return self._game.step(reply)

    def verify(self, response: dict[str, Any]) -> Reward:
        game = self.begin()
        for reply in answered_replies(response):
            game.step(reply)
        return self.score(game)


def answered_replies(response: dict[str, Any]) -> list[str]:
    """Return the text of each reply that a user message follows, in order: the environment answered it."""
    return _split(response)[0]


def all_replies(response: dict[str, Any]) -> list[str]:
    """Return the text of each reply, without the last if a limit ended the attempt after it."""
    answered, rest = _split(response)
    return answered if not rest or response.get("status") == "incomplete" else [*answered, assistant_text(rest)]


def _split(response: dict[str, Any]) -> tuple[list[str], list[Item]]:
    """Return the texts of the answered replies, and the items after the last answer."""
    answered: list[str] = []
    rest: list[Item] = []
    for item in response.get("output") or []:
        if item_type(item) == "message" and item.get("role") == "user":
            answered.append(assistant_text(rest))
            rest = []
        else:
            rest.append(item)
    return answered, rest
