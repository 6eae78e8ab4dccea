"""Tasks of the calculator: arithmetic in words and symbols, too hard for mental arithmetic."""

from random import Random

from apps.gym.arithmetic import evaluate
from apps.gym.environments.task_generation import Call, Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

_TERMS = {"easy": 2, "medium": 4, "hard": 6}
_LARGEST = {"easy": 99, "medium": 999, "hard": 9999}
_FORMS = [
    "What is {expression}?",
    "Work out {expression}.",
    "Compute the value of {expression}.",
    "How much is {expression}?",
]


def make_task(dice: Random, difficulty: Difficulty) -> TaskRow:
    expression = _expression(dice, _TERMS[difficulty], _LARGEST[difficulty])
    return {
        "responses_create_params": ask(
            f"{dice.choice(_FORMS).format(expression=expression)} Put the answer in \\boxed{{}}."
        ),
        "expected_answer": evaluate(expression),
        "expression": expression,
    }


def _expression(dice: Random, terms: int, largest: int) -> str:
    """Return sums and differences of products of two integers: hard to guess, and not too long."""
    if terms == 1:
        return str(dice.randint(12, largest))
    left = dice.randint(1, terms - 1)
    sign = dice.choice("+-") if terms > 2 else "*"
    sides = [_expression(dice, left, largest), _expression(dice, terms - left, largest)]
    first, second = (f"({side})" if " " in side else side for side in sides)
    return f"{first} {sign} {second}"


def solve(seen: Seen) -> Move:
    if seen.turn == 0:
        return Move(calls=[Call("calculator", {"expression": seen.row["expression"]})])
    value = seen.outputs[-1].removeprefix('{"result": ').removesuffix("}")
    return Move(text=f"The calculator says {value}.\n\n\\boxed{{{value}}}")


def list_cases() -> list[Case]:
    row: TaskRow = {"responses_create_params": ask("What is 37 * 41? Box it."), "expected_answer": 1517}
    right, wrong = "\\boxed{1517}", "\\boxed{1516}"
    refused = Move(calls=[Call("calculator", {"expression": "37 *"})])
    return [
        Case(name="a boxed number", kind="full reward", row=row, play=say(right), reward=1.0),
        Case(name="thousands with a comma", kind="full reward", row=row, play=say("It is 1,517."), reward=1.0),
        Case(name="one off", kind="zero reward", row=row, play=say(wrong), reward=0.0),
        Case(name="a call that the tool refuses", kind="malformed", row=row, play=say(refused, "none"), reward=0.0),
        Case(name="a box that never ends", kind="malformed", row=row, play=say("\\boxed{{{"), reward=0.0),
        Case(name="a wrong answer again", kind="determinism", row=row, play=say(wrong), reward=0.0),
    ]


def _essence(row: TaskRow) -> list[str]:
    """Identify tasks by their numbers and operators, whatever their wording and order: 3 * 4 is 4 * 3."""
    return sorted(row["expression"].split())


KIT = Kit(make_task=make_task, solve=solve, cases=list_cases, max_steps=5, identity=_essence)
