"""Sokoban: each reply makes some moves; the reward comes when every box is on a goal."""

from typing import Any, ClassVar

from apps.gym.builtin.protocol import Transition, unknown_tool
from apps.gym.builtin.sokoban.board import BadBoard, read_board
from apps.gym.builtin.sokoban.game import SokobanGame
from apps.gym.builtin.turns import answered_replies
from apps.gym.errors import EnvironmentFault
from apps.gym.items import Item, TaskRow, Tool
from apps.gym.rewards import Reward

_MOST_MOVES = 1_000


class Sokoban:
    name: ClassVar[str] = "sokoban"
    description: ClassVar[str] = (
        "A game in the style of Gymnasium: each reply makes moves on the row's board. 1.0 when every box is on a goal "
        "within the row's max_moves."
    )
    tools: ClassVar[list[Tool]] = []
    needs: ClassVar[frozenset[str]] = frozenset({"board", "max_moves"})
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed
        self._game: SokobanGame | None = None

    def reset(self) -> str:
        self._game = self._begin()
        return self._game.look()

    def step(self, reply: str) -> Transition:
        self._game = self._game or self._begin()
        return self._game.step(reply)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        game = self._begin()
        for reply in answered_replies(response):
            game.step(reply)
        home = len(game.state.boxes & game.board.goals)
        known = self.row.get("known_moves")
        parts = {"solved": float(game.solved), "boxes_home": home / len(game.board.goals)}
        if isinstance(known, int):
            parts["economy"] = min(1.0, known / game.made) if game.solved and game.made else 0.0
        told = f"{home} of {len(game.board.goals)} boxes on a goal after {game.made} moves"
        return Reward(value=float(game.solved), components=parts, explanation=told)

    def _begin(self) -> SokobanGame:
        most = self.row.get("max_moves")
        try:
            board, state = read_board(self.row.get("board"))
        except BadBoard as problem:
            raise EnvironmentFault(f"the task row's `board`: {problem}").lasting() from None
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST_MOVES:
            raise EnvironmentFault(f"the task row's `max_moves` must be a number from 1 to {_MOST_MOVES}").lasting()
        return SokobanGame(board, state, most)
