"""Games in turns: each reply is a step, and the verifier plays the replies of an attempt's response again."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from apps.gym.environments.protocol import Transition, unknown_tool
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, item_type


class Played(Protocol):
    """One game under way."""

    def look(self) -> str: ...

    def step(self, reply: str) -> Transition: ...


PlayedGame = TypeVar("PlayedGame", bound=Played)


class GameInTurns(ABC, Generic[PlayedGame]):
    """A built-in environment that is such a game: `begin` sets it up by the row, `score` says what its end is worth."""

    name: ClassVar[str]
    description: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    tools: ClassVar[list[Tool]] = []
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed
        self._game: PlayedGame | None = None

    @abstractmethod
    def begin(self) -> PlayedGame:
        """Raises EnvironmentFault for a row that is no game."""

    @abstractmethod
    def score(self, game: PlayedGame) -> Reward: ...

    def reset(self) -> str:
        self._game = self.begin()
        return self._game.look()

    def step(self, reply: str) -> Transition:
        self._game = self._game or self.begin()
        return self._game.step(reply)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        game = self.begin()
        for reply in answered_replies(response):
            game.step(reply)
        return self.score(game)


def answered_replies(response: dict[str, Any]) -> list[str]:
    """The text of each reply that the environment answered, in order. It answers with one message."""
    return _split(response)[0]


def all_replies(response: dict[str, Any]) -> list[str]:
    """The same with the last one, which ended the attempt; not if it was cut off, as then nobody heard it."""
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
