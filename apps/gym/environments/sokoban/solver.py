"""Solve small boards with the fewest pushes, and draw boards that may be solved.

A set of cells is a whole number with a bit for each, so that all cells that the player can walk to are found at once.
"""

import random
from collections import deque

from apps.gym.environments.sokoban.board import MOVES, Board, Cell, State

_MOST_STATES = 2_000

_Place = tuple[int, int]
"""Where the boxes are, and the cells that the player can walk to."""


class _Grid:
    """A board in bits. Its border is wall everywhere, or the walls beyond it are."""

    def __init__(self, board: Board) -> None:
        self.width = board.width + 2
        self.steps = {name: down * self.width + right for name, (down, right) in MOVES.items()}
        inside = {(row, column) for row in range(board.height) for column in range(board.width)}
        self.free = self.bits(inside - board.walls)
        self.goals = self.bits(set(board.goals))
        self.alive = self._find_alive()

    def bit(self, cell: Cell) -> int:
        return 1 << self.place(cell)

    def place(self, cell: Cell) -> int:
        return (cell[0] + 1) * self.width + cell[1] + 1

    def bits(self, cells: set[Cell]) -> int:
        return sum(map(self.bit, cells))

    def reach(self, start: int, boxes: int) -> int:
        free, width, seen = self.free & ~boxes, self.width, 0
        found = start
        while found != seen:
            seen = found
            found |= (found << 1 | found >> 1 | found << width | found >> width) & free
        return found

    def pushes(self, place: _Place) -> list[tuple[int, str, _Place]]:
        """Each push with the place of its box, its direction and where it leads."""
        boxes, reach = place
        found, open_cells, left = [], self.alive & ~boxes, boxes
        while left:
            box = left & -left
            left ^= box
            at = box.bit_length() - 1
            for name, step in self.steps.items():
                if reach >> (at - step) & 1 and open_cells >> (at + step) & 1:
                    pushed = boxes ^ box | 1 << (at + step)
                    found.append((at, name, (pushed, self.reach(box, pushed))))
        return found

    def _find_alive(self) -> int:
        """Where a box can reach a goal if it is alone: a box anywhere else is lost."""
        alive, queue = self.goals, deque(at for at in range(self.goals.bit_length()) if self.goals >> at & 1)
        while queue:
            at = queue.popleft()
            for step in self.steps.values():
                box, player = at - step, at - 2 * step
                if self.free >> box & 1 and player >= 0 and self.free >> player & 1 and not alive >> box & 1:
                    alive |= 1 << box
                    queue.append(box)
        return alive


def solve(board: Board, start: State) -> list[str] | None:
    """The moves of a solution with the fewest pushes; None where there is none, or too much to look at."""
    grid = _Grid(board)
    boxes = grid.bits(set(start.boxes))
    if boxes & ~grid.alive:
        return None
    first = (boxes, grid.reach(grid.bit(start.player), boxes))
    came: dict[_Place, tuple[_Place, int, str] | None] = {first: None}
    queue = deque([first])
    while queue and len(came) < _MOST_STATES:
        place = queue.popleft()
        if place[0] == grid.goals:
            return _walk(board, start, grid, _trace(came, place))
        for at, name, pushed in grid.pushes(place):
            if pushed not in came:
                came[pushed] = (place, at, name)
                queue.append(pushed)
    return None


def _trace(came: dict[_Place, tuple[_Place, int, str] | None], place: _Place) -> list[tuple[int, str]]:
    pushes = []
    while step := came[place]:
        place, at, name = step
        pushes.append((at, name))
    return pushes[::-1]


def _walk(board: Board, state: State, grid: _Grid, pushes: list[tuple[int, str]]) -> list[str]:
    """The pushes with the shortest ways between them."""
    moves: list[str] = []
    for at, name in pushes:
        behind = at - grid.steps[name]
        for step in [*_way(board, state, (behind // grid.width - 1, behind % grid.width - 1)), name]:
            state = board.move(state, step)
            moves.append(step)
    return moves


def _way(board: Board, state: State, target: Cell) -> list[str]:
    came: dict[Cell, list[str]] = {state.player: []}
    queue = deque([state.player])
    while target not in came:
        at = queue.popleft()
        for name in MOVES:
            moved = board.move(State(at, state.boxes), name)
            if moved.boxes == state.boxes and moved.player not in came:
                came[moved.player] = [*came[at], name]
                queue.append(moved.player)
    return came[target]


def draw_board(dice: random.Random, *, side: int, boxes: int, walls: int) -> tuple[Board, State]:
    """A walled room with boxes and goals anywhere; whether it can be solved is to be seen."""
    inner = [(row, column) for row in range(1, side - 1) for column in range(1, side - 1)]
    border = {(row, column) for row in range(side) for column in range(side)} - set(inner)
    places = dice.sample(inner, walls + 2 * boxes + 1)
    blocks, rest = places[:walls], places[walls:]
    board = Board(side, side, frozenset(border.union(blocks)), frozenset(rest[:boxes]))
    return board, State(rest[-1], frozenset(rest[boxes : 2 * boxes]))
