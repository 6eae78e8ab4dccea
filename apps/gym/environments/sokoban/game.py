"""One game of Sokoban: replies with moves, until the boxes are on their goals or the moves are used up."""

import re

from apps.gym.environments.protocol import Transition
from apps.gym.environments.sokoban.board import Board, State

_MOVES = re.compile(r"moves?\s{0,3}:([^\n]*)", re.IGNORECASE)
_LINE = re.compile(r"^[ \t>*_`]{0,9}moves?[ \t*_]{0,3}:([^\n]*)", re.IGNORECASE | re.MULTILINE)
_WORD = re.compile(r"up|down|left|right", re.IGNORECASE)
MOST_MISTAKES = 3


class SokobanGame:
    """`mistakes` counts replies without moves, which end the game when there are too many."""

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
        # In a fence, or pages would take walls for headings.
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
    """The moves of the last line that begins with "Moves:"; none where it holds any other word. Where no line begins
    so, what follows the last "Moves:" within one."""
    lines = _LINE.findall(reply) or _MOVES.findall(reply)
    if not lines:
        return []
    words = re.findall(r"\w+", lines[-1])
    return [word.lower() for word in words] if all(map(_WORD.fullmatch, words)) else []
