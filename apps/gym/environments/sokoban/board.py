"""The board and rules of Sokoban: `#` wall, `@` player, `$` box, `.` goal, `*` and `+` box and player on a goal."""

from typing import NamedTuple

Cell = tuple[int, int]
"""Row and column."""

MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_MOST_CELLS = 900


class BadBoard(ValueError):
    """Raised when the rows are not a valid board."""


class State(NamedTuple):
    player: Cell
    boxes: frozenset[Cell]


class Board(NamedTuple):
    """The fixed part of a game."""

    height: int
    width: int
    walls: frozenset[Cell]
    goals: frozenset[Cell]

    def move(self, state: State, name: str) -> State:
        """Return the next state, or the same one if a wall or an immovable box is in the way."""
        down, right = MOVES[name]
        ahead = (state.player[0] + down, state.player[1] + right)
        if ahead in self.walls:
            return state
        if ahead not in state.boxes:
            return State(ahead, state.boxes)
        beyond = (ahead[0] + down, ahead[1] + right)
        if beyond in self.walls or beyond in state.boxes:
            return state
        return State(ahead, state.boxes - {ahead} | {beyond})

    def is_solved(self, state: State) -> bool:
        return state.boxes == self.goals

    def draw(self, state: State) -> list[str]:
        return ["".join(self._mark((row, column), state) for column in range(self.width)) for row in range(self.height)]

    def _mark(self, cell: Cell, state: State) -> str:
        if cell in self.walls:
            return "#"
        on_goal = cell in self.goals
        if cell == state.player:
            return "+" if on_goal else "@"
        if cell in state.boxes:
            return "*" if on_goal else "$"
        return "." if on_goal else " "


def read_board(rows: object) -> tuple[Board, State]:
    """Read a board and its state. Cells outside the rows are walls. Raises BadBoard."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
        raise BadBoard("a board is a list of rows of text")
    width = max(map(len, rows))
    if len(rows) * width > _MOST_CELLS:
        raise BadBoard(f"the board has {len(rows)} × {width} cells; at most {_MOST_CELLS} are played")
    cells = {(at, column): mark for at, row in enumerate(rows) for column, mark in enumerate(row.ljust(width, "#"))}
    edge = {(at, column) for at in (-1, len(rows)) for column in range(width)}
    edge |= {(at, column) for at in range(len(rows)) for column in (-1, width)}
    players = [cell for cell, mark in cells.items() if mark in "@+"]
    boxes = frozenset(cell for cell, mark in cells.items() if mark in "$*")
    goals = frozenset(cell for cell, mark in cells.items() if mark in ".*+")
    if len(players) != 1 or not boxes or len(boxes) != len(goals) or set(cells.values()) - set("#@$.*+ "):
        raise BadBoard("a board has one player, and as many boxes as goals, and no other marks than # @ $ . * +")
    walls = frozenset(cell for cell, mark in cells.items() if mark == "#") | edge
    return Board(len(rows), width, walls, goals), State(players[0], boxes)
