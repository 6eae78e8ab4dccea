import random

import pytest

from apps.gym.environments.sokoban.board import BadBoard, read_board
from apps.gym.environments.sokoban.environment import Sokoban, read_moves
from apps.gym.environments.sokoban.kit import draw_board, solve
from apps.gym.errors import EnvironmentFault

PARAMS = {"responses_create_params": {"input": "Play."}}


def play(rows, *names):
    board, state = read_board(rows)
    for name in names:
        state = board.move(state, name)
    return board.draw(state)


@pytest.mark.parametrize(
    ("rows", "moves", "after"),
    [
        (["#####", "#@$ #", "#. ##"], ["right"], ["#####", "# @$#", "#. ##"]),
        (["#####", "#@$##", "#. ##"], ["right"], ["#####", "#@$##", "#. ##"]),
        (["@$$..#"], ["right"], ["@$$..#"]),
        (["@$. #"], ["right"], [" @* #"]),
        (["@$. #"], ["right", "right"], ["  +$#"]),
        (["@$."], ["right", "right", "left"], ["@ *"]),
        (["@ $."], ["up", "left"], ["@ $."]),
    ],
)
def test_the_rules(rows, moves, after):
    assert play(rows, *moves) == after


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "a list of rows"),
        ("@$.", "a list of rows"),
        (["@$"], "as many boxes as goals"),
        (["@@$."], "one player"),
        (["@$.x"], "no other marks"),
        (["@$." + " " * 1000], "at most 900"),
    ],
)
def test_an_invalid_board_is_explained(rows, told):
    with pytest.raises(BadBoard, match=told):
        read_board(rows)


def test_a_row_that_is_no_game_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="the task row's `board`: a board has one player"):
        Sokoban({**PARAMS, "board": ["$."], "max_moves": 9}).reset()
    with pytest.raises(EnvironmentFault, match="`max_moves` must be a number from 1 to 1000"):
        Sokoban({**PARAMS, "board": ["@$."], "max_moves": True}).reset()


@pytest.mark.parametrize(
    ("reply", "moves"),
    [
        ("Moves: up, left", ["up", "left"]),
        ("I think.\nMOVE: Down", ["down"]),
        ("Moves: up\nMoves: right", ["right"]),
        ("Moves: up, jump", []),
        ("Moves:", []),
        ("I push. Moves: left", ["left"]),
        ("Moves: up, left\n\nWhat this moves: the box.", ["up", "left"]),
        ("```\n**Moves:** up\n```", ["up"]),
        ("- `Moves: up`", ["up"]),
        ("up, left", []),
    ],
)
def test_moves_are_read_from_the_last_line_of_moves(reply, moves):
    assert read_moves(reply) == moves


def test_moves_beyond_the_last_one_allowed_are_not_made():
    game = Sokoban({**PARAMS, "board": ["@ $ ."], "max_moves": 2})
    game.reset()
    shown, over = game.step("Moves: right, right, right")
    assert (shown.startswith("```\n  @$.\n```\n"), "Moves left: 0" in shown, over) == (True, True, True)
    assert game.step("Moves: right") == ("The game is over.", True)


def test_what_the_solver_finds_solves():
    dice, found, solved = random.Random(4), 0, 0
    for _ in range(300):
        board, state = draw_board(dice, side=6, boxes=2, walls=2)
        moves = solve(board, state)
        found += moves is not None
        for name in moves or []:
            state = board.move(state, name)
        solved += board.is_solved(state)
    assert found == solved > 20


def test_a_box_in_a_corner_has_no_solution():
    assert solve(*read_board(["#####", "#$  #", "# @.#", "#####"])) is None
