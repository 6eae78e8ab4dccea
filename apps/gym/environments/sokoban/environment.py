"""Sokoban: each reply makes some moves; the reward comes when every box is on a goal."""

from typing import ClassVar

from apps.gym.environments.sokoban.board import BadBoard, read_board
from apps.gym.environments.sokoban.game import SokobanGame
from apps.gym.environments.turn_environments import GameInTurns
from apps.gym.errors import EnvironmentFault
from apps.gym.rewards import Reward

_MOST_MOVES = 1_000


class Sokoban(GameInTurns[SokobanGame]):
    name: ClassVar[str] = "sokoban"
    description: ClassVar[str] = (
        "A game in the style of Gymnasium: each reply makes moves on the row's board. 1.0 when every box is on a goal "
        "within the row's max_moves."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"board", "max_moves"})

    def score(self, game: SokobanGame) -> Reward:
        home = len(game.state.boxes & game.board.goals)
        known = self.row.get("known_moves")
        parts = {"solved": float(game.solved), "boxes_home": home / len(game.board.goals)}
        if isinstance(known, int):
            parts["economy"] = min(1.0, known / game.made) if game.solved and game.made else 0.0
        told = f"{home} of {len(game.board.goals)} boxes on a goal after {game.made} moves"
        return Reward(value=float(game.solved), components=parts, explanation=told)

    def begin(self) -> SokobanGame:
        most = self.row.get("max_moves")
        try:
            board, state = read_board(self.row.get("board"))
        except BadBoard as problem:
            raise EnvironmentFault(f"the task row's `board`: {problem}").lasting() from None
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST_MOVES:
            raise EnvironmentFault(f"the task row's `max_moves` must be a number from 1 to {_MOST_MOVES}").lasting()
        return SokobanGame(board, state, most)
