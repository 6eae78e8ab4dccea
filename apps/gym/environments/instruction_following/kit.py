"""Tasks, players and cases of instruction following: players that follow all instructions, or use a fixed text."""

import random
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import msgspec

from apps.gym.environments.instruction_following.constraints import ENDS, KEYWORDS, MAKERS, STARTS, TOPICS, Asked, Check
from apps.gym.environments.instruction_following.environment import is_varied
from apps.gym.environments.instruction_following.writing import Plan, write_answer, write_text
from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS

_COUNT: dict[Difficulty, tuple[int, int]] = {"easy": (2, 2), "medium": (3, 4), "hard": (5, 7)}
MOST_CHANCE = 0.07
"""Maximum chance of a fixed text.

Constraints are drawn independently, so a fixed text satisfies all constraints of a task with at most the product of
their chances. No text has a higher mean reward.
"""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    # Repeating the prompt must not succeed, and the prompt itself may satisfy some constraints, for example a keyword.
    while True:
        topic = dice.choice(sorted(TOPICS))
        asked = _choose(dice, topic, dice.randint(*_COUNT[difficulty]))
        checks = [check for one in asked for check in one.checks]
        told = "\n".join(f"- {one.text}" for one in asked)
        prompt = f"Write a short text about {topic}.\n\n{told}"
        if not all(CONSTRAINTS[name].follows(prompt, given) for name, given in checks):
            return {
                "responses_create_params": ask(prompt),
                "instruction_id_list": [name for name, _ in checks],
                "kwargs": [given for _, given in checks],
            }


def _choose(dice: random.Random, topic: str, count: int) -> list[Asked]:
    while True:
        chosen: list[Asked] = []
        for maker in dice.sample(MAKERS, len(MAKERS)):
            one = maker(dice, topic)
            if not any(one.about & other.about for other in chosen):
                chosen.append(one)
            if len(chosen) == count:
                break
        if prod(one.chance for one in chosen) <= MOST_CHANCE:
            return chosen


_TASKS = 80
_LONG = Plan(
    title=True,
    words=(*KEYWORDS, *TOPICS.values()),
    highlights=4,
    placeholders=4,
    capitals=8,
    sentences=24,
    bullets=4,
    postscript=True,
)
_SHORT = Plan(sentences=6)
_CHANGES: dict[str, Sequence[object]] = {
    # Phrases and counts are drawn with equal probability, so trying a few of them is enough.
    "start": ("", *STARTS[::6]),
    "end": ("", *ENDS[::4]),
    "title": (False, True),
    "quoted": (False, True),
    "postscript": (False, True),
    "bullets": (0, 3, 6),
    "paragraphs": (1, 2, 4),
    "sentences": range(4, 24),
    "highlights": (0, 4),
    "placeholders": (0, 4),
    "capitals": (0, 8),
    "words": ((), tuple(TOPICS.values()), *((*KEYWORDS * times, *TOPICS.values()) for times in (1, 3, 5))),
}


@lru_cache(maxsize=3)
def find_constant(difficulty: Difficulty) -> str:
    """Return the fixed text with the highest mean reward.

    A greedy search improves one property of a long and of a short text at a time.
    """
    payer = _Payer([make_task(random.Random(f"constant/{number}"), difficulty) for number in range(_TASKS)])
    return max((_climb(plan, payer) for plan in (_LONG, _SHORT)), key=payer.pay)


class _Payer:
    """Compute the mean reward of one text over tasks. Tasks share most constraints, so each is checked once."""

    def __init__(self, rows: list[TaskRow]) -> None:
        self._checks: dict[str, Check] = {}
        self._tasks: list[list[str]] = []
        for row in rows:
            named = {str(check): check for check in _checks_of(row)}
            self._checks |= named
            self._tasks.append(list(named))

    def pay(self, text: str) -> tuple[float, float]:
        """Return the mean reward, then the mean share of satisfied constraints as a tie-breaker."""
        if not is_varied(text):
            return 0.0, 0.0
        met = {key: CONSTRAINTS[name].follows(text, given) for key, (name, given) in self._checks.items()}
        parts = [sum(met[key] for key in task) / len(task) for task in self._tasks]
        return sum(part == 1.0 for part in parts) / len(parts), sum(parts) / len(parts)


def _climb(plan: Plan, payer: _Payer) -> str:
    paid, before = payer.pay(write_text(plan)), None
    while plan != before:
        before = plan
        for name, values in _CHANGES.items():
            for value in values:
                other = msgspec.structs.replace(plan, **{name: value})
                found = payer.pay(write_text(other)) if other != plan else paid
                if found > paid:
                    paid, plan = found, other
    return write_text(plan)


def _checks_of(row: TaskRow) -> list[Check]:
    return list(zip(row["instruction_id_list"], row["kwargs"], strict=True))


def _guess(seen: Seen) -> Move:
    asked = seen.prompt.count("\n- ")
    return Move(text=find_constant("easy" if asked < 3 else "medium" if asked < 5 else "hard"))


def _cases() -> list[Case]:
    row: TaskRow = {
        "responses_create_params": ask("Write about bread. Use no comma and at least 60 words; end with: Thank you."),
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "startend:end_checker"],
        "kwargs": [{}, {"num_words": 60, "relation": "at least"}, {"end_phrase": "Thank you."}],
    }
    in_parts = {**row, "grading_mode": "fraction"}
    text = write_answer(_checks_of(row))
    padded = f"{'bread ' * 80}Thank you."
    return [
        Case(name="all of them", kind="full reward", row=row, play=say(text), reward=1.0),
        Case(name="one of them not", kind="zero reward", row=row, play=say(text.replace("and", ",")), reward=0.0),
        Case(name="two of three, by parts", kind="zero reward", row=in_parts, play=say(f"{text} Bye"), reward=2 / 3),
        Case(name="one word over and over", kind="zero reward", row=row, play=say(padded), reward=0.0),
        Case(name="an empty reply", kind="malformed", row=row, play=say(" "), reward=0.0),
    ]


KIT = Kit(
    make_task=make_task,
    solve=lambda seen: Move(text=write_answer(_checks_of(seen.row))),
    guess=_guess,
    cases=_cases,
)
