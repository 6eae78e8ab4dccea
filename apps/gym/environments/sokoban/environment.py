"""Sokoban: each reply makes some moves; the reward is 1 when every box is on a goal."""

import re
from typing import ClassVar

from apps.gym.environments.protocol import Transition, TurnBasedGame
from apps.gym.environments.sokoban.board import BadBoard, Board, State, read_board
from apps.gym.errors import EnvironmentFault
from apps.gym.rewards import Reward

_MOVES = re.compile(r"moves?\s{0,3}:([^\n]*)", re.IGNORECASE)
_LINE = re.compile(r"^[ \t>*_`]{0,9}moves?[ \t*_]{0,3}:([^\n]*)", re.IGNORECASE | re.MULTILINE)
_WORD = re.compile(r"up|down|left|right", re.IGNORECASE)
MOST_MISTAKES = 3


class SokobanGame:
    """One game. `mistakes` counts replies without moves; too many of them end the game."""

    def __init__(self, board: Board, state: State, max_moves: int) -> None:
        self.board = board
        self.state = state
        self.left = max_moves
        self.made = 0
        self.mistakes = 0

    @property
    def solved(self) -> bool:
        return self.board.is_solved(self.state)

    def is_over(self) -> bool:
        return self.solved or self.left <= 0 or self.mistakes >= MOST_MISTAKES

    def look(self) -> str:
        rows = "\n".join(self.board.draw(self.state))
        # Fenced, because pages would render walls as headings.
        return f"```\n{rows}\n```\n\nMoves left: {self.left}."

    def step(self, reply: str) -> Transition:
        if self.is_over():
            return Transition("The game is over.", done=True)
        names = read_moves(reply)
        if not names:
            self.mistakes += 1
            told = 'I see no moves. Reply with them on a line that begins with "Moves:".'
            return Transition(f"{told}\n\n{self.look()}", done=self.is_over())
        blocked = 0
        for name in names:
            if self.left <= 0 or self.solved:
                break
            moved = self.board.move(self.state, name)
            blocked += moved == self.state
            self.state = moved
            self.made += 1
            self.left -= 1
        told = f"{blocked} of these moves led nowhere.\n\n" if blocked else ""
        end = "\n\nSolved." if self.solved else "\n\nThe game is over." if self.is_over() else ""
        return Transition(f"{told}{self.look()}{end}", done=self.is_over())


def read_moves(reply: str) -> list[str]:
    """Return the moves of the last line that begins with "Moves:", or none if it contains any other word.

    If no line begins so, read the text after the last "Moves:" within a line.
    """
    lines = _LINE.findall(reply) or _MOVES.findall(reply)
    if not lines:
        return []
    words = re.findall(r"\w+", lines[-1])
    return [word.lower() for word in words] if all(map(_WORD.fullmatch, words)) else []


_MOST_MOVES = 1_000


class Sokoban(TurnBasedGame[SokobanGame]):
    name: ClassVar[str] = "sokoban"
    description: ClassVar[str] = (
        "A game with Gymnasium-style steps: each reply makes moves on the row's board. Reward 1.0 if every box is "
        "on a goal within the row's max_moves."
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
            raise EnvironmentFault(f"the task row's `board`: {problem}").permanent() from None
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST_MOVES:
            raise EnvironmentFault(f"the task row's `max_moves` must be a number from 1 to {_MOST_MOVES}").permanent()
        return SokobanGame(board, state, most)
