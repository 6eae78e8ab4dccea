"""Tasks, players and cases of the simulated user: twelve requests, and a player that knows the expected actions."""

import random
import re

from apps.gym.environments.simulated_user.scenarios import REQUESTS, draw_task
from apps.gym.environments.simulated_user.user_tasks import read_task
from apps.gym.environments.task_generation import Call, Case, Difficulty, Kit, Move, Seen, say
from apps.gym.traces.items import TaskRow

_CLOSING = "Is there anything else that I can do?"


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    return draw_task(dice, dice.choice(REQUESTS[difficulty]))


def twelve_tasks() -> list[TaskRow]:
    """Return one task of each request."""
    return [draw_task(random.Random(0), make) for level in REQUESTS.values() for make in level]


def _moves(row: TaskRow) -> list[Move]:
    """Return the expected actions as replies: calls, and requests to the user.

    Raises IndexError for an action of the user without an instruction that a script can follow.
    """
    instructions = row["user_scenario"]["instructions"]["task_instructions"]
    moves = [Move(text="What is your card number, and your new e-mail address, if you have one?")]
    criteria = read_task(row, has_judge=True).evaluation_criteria
    for action in criteria.actions or []:
        if action.requestor == "assistant":
            moves.append(Move(calls=[Call(action.name, action.arguments)]))
        else:
            asked = re.findall(rf"When asked to ([^.]+), call {action.name}\(", instructions)
            moves.append(Move(text=f"Please {asked[0]}."))
    return [*moves, Move(text=". ".join([*(criteria.communicate_info or []), _CLOSING]))]


def _solve(seen: Seen) -> Move:
    moves = _moves(seen.row)
    return moves[min(seen.turn, len(moves) - 1)]


def _cases() -> list[Case]:
    renew, reserve, email, lost, returned, due, _, swap, twice, fine, held, librarian = twelve_tasks()
    loans = twice["initial_state"]["initialization_data"]["agent_data"]["loans"]
    third = [Call("renew_loan", {"loan": loan}) for loan in loans if loans[loan]["renewals"] == 2]
    waive = fine["evaluation_criteria"]["actions"][-1]
    unasked = Call("place_hold", {"member": "M-193", "book": "B-12"})
    wrong = Move(calls=[Call("set_email", {"member": "M-104"}), Call("set_email", "{")])
    zero: list[tuple[str, TaskRow, list[Move]]] = [
        ("claimed, not done", reserve, [Move(text="I have reserved it.")]),
        ("the due date is not told", renew, _moves(renew)[:-1]),
        ("only a date is told", due, [Move(text=due["evaluation_criteria"]["communicate_info"][1])]),
        ("renewed a third time", twice, [Move(calls=third), *_moves(twice)]),
        ("the book is not in the returns box", returned, [move for move in _moves(returned) if move.calls]),
        ("only the fine is waived", fine, [Move(calls=[Call(waive["name"], waive["arguments"])])]),
        ("the second wish is not met", swap, _moves(swap)[:2]),
        ("not transferred", librarian, _moves(librarian)[:-2]),
        ("more than asked for", lost, [Move(calls=[unasked]), *_moves(lost)]),
    ]
    closing = Move(text=_CLOSING)
    return [
        Case(name="the user helps", kind="full reward", row=held, play=_solve, reward=1.0),
        *(
            Case(name=name, kind="zero reward", row=row, play=say(*moves, closing), reward=0.0)
            for name, row, moves in zero
        ),
        Case(name="arguments in a wrong form", kind="malformed", row=email, play=say(wrong, closing), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=_solve, cases=_cases, identity_fields=("user_scenario", "initial_state"))
