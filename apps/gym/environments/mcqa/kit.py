"""What comes with multiple choice: who knows the letter, who does not, and cases."""

from apps.gym.environments.mcqa.tasks import make_task
from apps.gym.environments.task_generation import Case, Kit, Move, Seen, ask, say
from apps.gym.verifiers.text.multiple_choice import read_options


def _solve(seen: Seen) -> Move:
    return Move(text=f"\\boxed{{{seen.row['expected_answer']}}}")


def _guess(seen: Seen) -> Move:
    return Move(text=f"\\boxed{{{seen.dice.choice(list(read_options(seen.row['options'], 'options')))}}}")


def _cases() -> list[Case]:
    row = {
        "responses_create_params": ask("Which is the largest?\n\nA: 1\nB: 3\nC: 2\n\nGive the letter in \\boxed{}."),
        "options": [{"A": "1"}, {"B": "3"}, {"C": "2"}],
        "expected_answer": "B",
    }
    return [
        Case(name="the letter in words", kind="full reward", row=row, play=say("Three: \\boxed{B}."), reward=1.0),
        Case(name="another letter", kind="zero reward", row=row, play=say("\\boxed{C}"), reward=0.0),
        Case(name="every letter", kind="malformed", row=row, play=say("\\boxed{A} \\boxed{B, C}"), reward=0.0),
        Case(name="the letter without its box", kind="malformed", row=row, play=say("B"), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases)
