"""The interface of built-in environments: one object per attempt, with fast synchronous methods."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, item_type
from apps.gym.verifiers.protocol import Verifier


class ToolRefused(Exception):
    """Raised when a tool call cannot be done. `error` is a short code; the message goes back to the policy model."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BuiltinEnvironment:
    """One attempt, with synchronous methods. By default it has no tools, and a reply without calls ends it.

    Each of its tools is a method of the same name, which takes the arguments as an object and returns text.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    tools: ClassVar[list[Tool]] = []

    needs: ClassVar[frozenset[str]]
    """Fields of a task's row that verification requires."""

    quick: ClassVar[bool] = True
    """True if methods are fast enough for the event loop: well under a millisecond, except verifying attempts of more
    than 100,000 characters.

    Methods of custom environments run in threads, within the environment's time limits; creating one must be fast too.
    """

    takes_turns: ClassVar[bool] = False
    """True if an attempt continues after a reply without tool calls."""

    asks_judge: ClassVar[bool] = False

    verifier: ClassVar[Verifier | None] = None
    """Used instead of `verify`. A slow verifier runs in a process that can be stopped."""

    @classmethod
    def check_row(cls, row: TaskRow, *, has_judge: bool) -> None:
        """Raise VerifierError or JudgeError for a row whose attempts could not be scored."""

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
        """Return observations after a reply without tool calls, or None when the environment is done."""
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        raise NotImplementedError


class Transition(NamedTuple):
    """Result of a step: the observation, never empty, and whether the episode ended."""

    observation: str
    done: bool


def unknown_tool(name: str, tools: list[Tool]) -> ToolRefused:
    names = ", ".join(tool["name"] for tool in tools)
    known = f"the tools are: {names}" if names else "this environment has no tools"
    return ToolRefused("unknown_tool", f"there is no tool named {cut(name, 100)!r}; {known}")


def read_only_text(arguments: dict[str, Any], name: str, wanted: str) -> str:
    """Return the text argument `name`. Raises ToolRefused with the message `wanted` if it is not the only argument."""
    given = arguments.get(name)
    if not isinstance(given, str) or len(arguments) != 1:
        raise ToolRefused("bad_arguments", wanted)
    return given


class Played(Protocol):
    """The interface of a running game."""

    def look(self) -> str: ...

    def step(self, reply: str) -> Transition: ...


PlayedGame = TypeVar("PlayedGame", bound=Played)


class GameInTurns(BuiltinEnvironment, ABC, Generic[PlayedGame]):
    """A built-in environment in which each reply of the policy model is a step, as in Gymnasium.

    `begin` starts the row's game, and `score` returns its reward. `verify` replays the replies, so it needs only the
    row.
    """

    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow) -> None:
        super().__init__(row)
        self._game: PlayedGame | None = None

    @abstractmethod
    def begin(self) -> PlayedGame:
        """Return the game of the row. Raises EnvironmentFault for an invalid row."""

    @abstractmethod
    def score(self, game: PlayedGame) -> Reward: ...

    def reset(self) -> str:
        self._game = self.begin()
        return self._game.look()

    def step(self, reply: str) -> Transition:
        self._game = self._game or self.begin()
        return self._game.step(reply)

    def verify(self, response: dict[str, Any]) -> Reward:
        game = self.begin()
        for reply in answered_replies(response):
            game.step(reply)
        return self.score(game)


def answered_replies(response: dict[str, Any]) -> list[str]:
    """Return the text of each reply that the environment answered, in order. An answer is one message."""
    return _split(response)[0]


def all_replies(response: dict[str, Any]) -> list[str]:
    """Return the text of all replies, including the final one unless the attempt was cut off before it."""
    answered, rest = _split(response)
    return answered if not rest or response.get("status") == "incomplete" else [*answered, assistant_text(rest)]


def _split(response: dict[str, Any]) -> tuple[list[str], list[Item]]:
    answered: list[str] = []
    rest: list[Item] = []
    for item in response.get("output") or []:
        if item_type(item) == "message" and item.get("role") == "user":
            answered.append(assistant_text(rest))
            rest = []
        else:
            rest.append(item)
    return answered, rest
