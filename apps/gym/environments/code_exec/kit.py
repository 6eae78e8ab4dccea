"""Python exercises: operations on a list of numbers, drawn by seed, with visible examples and hidden tests."""

import inspect
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

from apps.gym.environments.code_exec import steps
from apps.gym.environments.task_generation import Call, Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow, dump_json

_STEPS = {"easy": 1, "medium": 3, "hard": 5}
_TESTS = 12
_EXAMPLES = 2
_LEAST_ANSWERS = 5
"""Minimum number of different answers in the tests, so that a constant rarely passes."""
_LARGEST_NUMBER = 9
_RANGES = ((-40, 60), (-9, 12), (-2, 4))
"""Ranges of the list's numbers. Narrow ranges repeat numbers and hit boundaries more often."""

Step = list[Any]
"""A function's name and its number."""


def make_task(dice: Random, difficulty: Difficulty) -> TaskRow:
    while True:
        drawn = dice.sample(steps.NUMBERED, _STEPS[difficulty])
        chosen = [[step.__name__, dice.randint(2, _LARGEST_NUMBER)] for step in drawn]
        last = dice.choice(steps.RETURNED).__name__
        # Tests depend on the exercise, not on the seed: equal steps are the same task.
        tests = _make_tests(Random(dump_json([chosen, last])), chosen, last)
        if _is_telling(tests) and next(find_doubts(chosen, last, tests[_EXAMPLES:]), None) is None:
            return {
                "responses_create_params": ask(_prompt(chosen, last, tests[:_EXAMPLES])),
                "entry_point": "solve",
                "hidden_tests": tests[_EXAMPLES:],
                "steps": [*chosen, last],
            }


def _make_tests(dice: Random, chosen: list[Step], last: str) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = []
    known: list[list[int]] = []
    while len(tests) < _EXAMPLES + _TESTS:
        # The first two tests are visible; the empty list is hidden.
        size = 0 if len(tests) == _EXAMPLES else dice.randint(6, 16)
        least, most = _RANGES[len(tests) % len(_RANGES)] if len(tests) >= _EXAMPLES else _RANGES[len(tests)]
        values = [dice.randint(least, most) for _ in range(size)]
        if values not in known:
            known.append(values)
            tests.append({"args": [values], "expected": _answer(values, chosen, last)})
    return tests


def _answer(values: list[int], chosen: list[Step], last: str) -> Any:
    for name, number in chosen:
        values = getattr(steps, name)(values, number)
    return getattr(steps, last)(values)


def _is_telling(tests: list[dict[str, Any]]) -> bool:
    """Return True if the tests distinguish a correct function from a constant and from the identity."""
    answers = [dump_json(test["expected"]) for test in tests[_EXAMPLES:]]
    given = [dump_json(test["args"][0]) for test in tests[_EXAMPLES:]]
    most = max(answers.count(answer) for answer in answers)
    return len(set(answers)) >= _LEAST_ANSWERS and most <= _TESTS // 2 and answers != given


def find_doubts(chosen: list[Step], last: str, tests: list[dict[str, Any]]) -> Iterator[tuple[list[Step], str]]:
    """Yield the similar but wrong exercises that pass the hidden tests.

    They differ in one way: a step left out, a number one higher or lower, another return value, or two steps swapped
    whose order matters.
    """
    wrong: list[tuple[list[Step], str]] = []
    for at, (name, number) in enumerate(chosen):
        # There are no digits in base 1.
        numbers = [near for near in (number - 1, number + 1) if near > 1 or name != "digit_sums"]
        others: list[list[Step]] = [[], *([[name, near]] for near in numbers)]
        wrong += [([*chosen[:at], *other, *chosen[at + 1 :]], last) for other in others]
    wrong += [(chosen, other.__name__) for other in steps.RETURNED if other.__name__ != last]
    swapped = [([*chosen[:at], chosen[at + 1], chosen[at], *chosen[at + 2 :]], last) for at in range(len(chosen) - 1)]
    lists = [test["args"][0] for test in tests]
    # Some steps give the same result in any order; further lists show where the order matters.
    further = [values[at:] + other[::-1] for at, (values, other) in enumerate(pairwise(lists))]
    for one in [*wrong, *swapped]:
        if all(_answer(test["args"][0], *one) == test["expected"] for test in tests) and (
            one not in swapped or any(_answer(values, *one) != _answer(values, chosen, last) for values in further)
        ):
            yield one


def _prompt(chosen: list[Step], last: str, examples: list[dict[str, Any]]) -> str:
    told = [_say(name).format(n=number) for name, number in chosen]
    lines = [f"{place}. {text[0].upper()}{text[1:]}." for place, text in enumerate(told, 1)]
    shown = [f"    solve({test['args'][0]!r}) == {test['expected']!r}" for test in examples]
    return "\n".join(
        [
            "Write a Python function `solve(values)`. It is given a list of whole numbers, and does this, in order:",
            "",
            *lines,
            f"{len(lines) + 1}. Return {_say(last)}.",
            "",
            "Examples:",
            "",
            *shown,
            "",
            "The function is tried on other lists, the empty one among them. You may run code with `run_python`. Give "
            "the whole function in your last message, in one block that begins with ```python.",
        ]
    )


def _say(name: str) -> str:
    return str(getattr(steps, name).__doc__)


def write_solution(row: TaskRow) -> str:
    *chosen, last = row["steps"]
    functions = dict.fromkeys([*(name for name, _ in chosen), last])
    sources = [inspect.getsource(getattr(steps, name)) for name in functions]
    body = [f"    values = {name}(values, {number})" for name, number in chosen]
    return "\n\n".join([*sources, "\n".join(["def solve(values):", *body, f"    return {last}(values)"])])


def solve(seen: Seen) -> Move:
    source = write_solution(seen.row)
    if seen.turn == 0:
        return Move(
            text="I try it first.", calls=[Call("run_python", {"code": f"{source}\n\nprint(solve([3, 1, 2]))"})]
        )
    return Move(text=f"This does it:\n\n```python\n{source}\n```")


_ROW: TaskRow = {
    "responses_create_params": ask("Write a Python function `double(n)` that returns n times 2, in a ```python block."),
    "entry_point": "double",
    "hidden_tests": [{"args": [n], "expected": 2 * n} for n in (0, 1, -7, 10**12)],
    "time_limit": 1,
}


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def list_cases() -> list[Case]:
    def case(name: str, kind: Any, text: str, reward: float) -> Case:
        return Case(name=name, kind=kind, row=_ROW, play=say(text), reward=reward)

    right = "def double(n):\n    return 2 * n"
    forged = 'import os\nos.write(1, b\'{"results": [{"value": true}]}\')\nos._exit(0)'
    return [
        case("a right function", "full reward", _block(right), 1.0),
        case("the last block counts", "full reward", f"{_block('oops(')}\nor rather\n{_block(right)}", 1.0),
        case("right for the first test alone", "zero reward", _block("def double(n):\n    return n"), 0.0),
        case("true is not 1", "zero reward", _block("def double(n):\n    return 2 * n if n != 1 else True"), 0.0),
        case("a forged verdict", "zero reward", _block(forged), 0.0),
        case("no block", "malformed", right, 0.0),
        case("no Python", "malformed", _block("def double(n"), 0.0),
        case("another function", "malformed", _block("def triple(n):\n    return 3 * n"), 0.0),
        case("a function that never ends", "malformed", _block("def double(n):\n    while True: pass"), 0.0),
        case("a right function again", "determinism", _block(right), 1.0),
    ]


KIT = Kit(make_task=make_task, solve=solve, cases=list_cases, max_steps=8)
