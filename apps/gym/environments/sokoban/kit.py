"""What comes with Sokoban: boards that can be solved, who knows how, who moves anywhere, and cases."""

import random

from apps.gym.environments.sokoban.board import MOVES, read_board
from apps.gym.environments.sokoban.solver import draw_board, solve
from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

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
"""Moves more than twice those of a known solution: enough to think again, too few to come upon it by walking about."""


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


def _guess(seen: Seen) -> Move:
    return _moves(seen.dice.choices(list(MOVES), k=10))


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


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=60, told_apart_by=("board",))
