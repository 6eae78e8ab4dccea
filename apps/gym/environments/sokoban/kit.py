"""Tasks, players and cases of Sokoban: solvable boards, a solving player and a random player."""

import random
from collections import deque

from apps.gym.environments.sokoban.board import MOVES, Board, Cell, State, read_board
from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

_MOST_STATES = 2_000

_Place = tuple[int, int]
"""The boxes, and the cells that the player can reach."""


class _Grid:
    """A board as bit masks, with a border of walls."""

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
        """Return each possible push: the position of its box, its direction and the resulting place."""
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
        """Return the cells from which a single box can reach a goal. A box on any other cell is lost."""
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
    """Return the moves of a solution with the fewest pushes, or None if none is found among `_MOST_STATES` states."""
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
    """Return the pushes joined by the shortest walks between them."""
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
    """Return a walled room with boxes and goals at random, which may not be solvable."""
    inner = [(row, column) for row in range(1, side - 1) for column in range(1, side - 1)]
    border = {(row, column) for row in range(side) for column in range(side)} - set(inner)
    places = dice.sample(inner, walls + 2 * boxes + 1)
    blocks, rest = places[:walls], places[walls:]
    board = Board(side, side, frozenset(border.union(blocks)), frozenset(rest[:boxes]))
    return board, State(rest[-1], frozenset(rest[boxes : 2 * boxes]))


_PROMPT = (
    "You are playing Sokoban. # is a wall, @ you, $ a box, . a goal, * a box on a goal, + you on a goal. You push a "
    "box by walking against it, if the cell behind it is free; you cannot pull. Bring every box onto a goal.\n\n"
    'Reply with your next moves on a line that begins with "Moves:", each of them up, down, left or right, with commas '
    "between. You will see the board after each reply, and need not make all moves at once."
)
_SIZES: dict[Difficulty, dict[str, int]] = {
    "easy": {"side": 6, "boxes": 1, "walls": 2},
    "medium": {"side": 7, "boxes": 2, "walls": 4},
    "hard": {"side": 7, "boxes": 3, "walls": 4},
}
_LEAST: dict[Difficulty, int] = {"easy": 8, "medium": 14, "hard": 18}
_SPARE = 6
"""Extra moves beyond twice those of a known solution: enough to correct mistakes, too few for a random walk."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        board, state = draw_board(dice, **_SIZES[difficulty])
        moves = solve(board, state) if not state.boxes & board.goals else None
        if moves and len(moves) >= _LEAST[difficulty]:
            return {
                "responses_create_params": ask(_PROMPT),
                "board": board.draw(state),
                "max_moves": 2 * len(moves) + _SPARE,
                "known_moves": len(moves),
            }


def _solve(seen: Seen) -> Move:
    board, state = read_board(seen.row["board"])
    moves = solve(board, state) or []
    half = len(moves) // 2
    return _moves(moves[:half] if seen.turn == 0 else moves[half:])


def _moves(names: list[str]) -> Move:
    return Move(text=f"Moves: {', '.join(names)}")


def _cases() -> list[Case]:
    row: TaskRow = {
        "responses_create_params": ask(_PROMPT),
        "board": ["######", "#@$ .#", "#    #", "######"],
        "max_moves": 8,
        "known_moves": 2,
    }
    away, out = say("Moves: down, down, left"), say("Moves: up, up, up, up, up, up, up, up, right, right")
    return [
        Case(name="two pushes", kind="full reward", row=row, play=say("I push. Moves: right, right"), reward=1.0),
        Case(name="one push at a time", kind="full reward", row=row, play=say("Moves: right"), reward=1.0),
        Case(name="elsewhere", kind="zero reward", row=row, play=away, reward=0.0),
        Case(name="right, but too late", kind="zero reward", row=row, play=out, reward=0.0),
        Case(name="another word among moves", kind="malformed", row=row, play=say("Moves: right, twice"), reward=0.0),
        Case(name="moves without their line", kind="malformed", row=row, play=say("right, right"), reward=0.0),
    ]


KIT = Kit(
    make_task=make_task,
    solve=_solve,
    guess=lambda seen: _moves(seen.dice.choices(list(MOVES), k=10)),
    cases=_cases,
    max_steps=60,
    identity_fields=("board",),
)
