"""Tasks of exact match: transform a string of letters by rules."""

from collections.abc import Callable
from random import Random
from string import ascii_lowercase

from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

_LETTERS = {"easy": 6, "medium": 10, "hard": 16}
_STEPS = {"easy": 1, "medium": 2, "hard": 3}
_RULES: dict[str, Callable[[str], str]] = {
    "write it backwards": lambda text: text[::-1],
    "sort its letters alphabetically": lambda text: "".join(sorted(text)),
    "move its first letter to the end": lambda text: text[1:] + text[:1],
    "put the next letter of the alphabet for each letter, with a after z": lambda text: "".join(
        ascii_lowercase[(ascii_lowercase.index(letter) + 1) % 26] for letter in text
    ),
    "swap its first half with its second": lambda text: text[len(text) // 2 :] + text[: len(text) // 2],
}


def make_task(dice: Random, difficulty: Difficulty) -> TaskRow:
    while True:
        word = "".join(dice.choices(ascii_lowercase, k=_LETTERS[difficulty]))
        names = dice.sample(sorted(_RULES), _STEPS[difficulty])
        answer = word
        for name in names:
            answer = _RULES[name](answer)
        if answer != word:
            told = ", then ".join(names)
            text = f"Take the letters {word}: {told}. Give only the letters, on the last line."
            return {"responses_create_params": ask(text), "expected_answer": answer}


def solve(seen: Seen) -> Move:
    return Move(text=f"Step by step this gives:\n{seen.row['expected_answer']}")


def list_cases() -> list[Case]:
    row: TaskRow = {"responses_create_params": ask("Write abc backwards."), "expected_answer": "cba"}
    return [
        Case(name="in a box", kind="full reward", row=row, play=say("\\boxed{cba}"), reward=1.0),
        Case(name="case and a full stop", kind="full reward", row=row, play=say("Answer: CBA."), reward=1.0),
        Case(name="another answer", kind="zero reward", row=row, play=say("cab"), reward=0.0),
        Case(name="the answer and more", kind="zero reward", row=row, play=say("cba or cab"), reward=0.0),
        Case(name="a box that never ends", kind="malformed", row=row, play=say("\\boxed{{{"), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=solve, cases=list_cases, max_steps=3)
