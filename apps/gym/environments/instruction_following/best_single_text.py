"""The one text that is paid best when it is given to every task: who looks for it learns nothing worth learning."""

import random
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from apps.gym.environments.instruction_following.constraints import ENDS, KEYWORDS, STARTS, TOPICS, Check
from apps.gym.environments.instruction_following.environment import is_varied
from apps.gym.environments.instruction_following.tasks import make_task
from apps.gym.environments.instruction_following.writing import Plan, write_text
from apps.gym.environments.task_generation import Difficulty
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS

_TASKS = 80
_ALL = tuple(KEYWORDS.split())
_LONG = Plan(
    title=True,
    words=(*_ALL, *TOPICS.values()),
    highlights=4,
    placeholders=4,
    capitals=8,
    sentences=24,
    bullets=4,
    postscript=True,
)
_SHORT = Plan(sentences=6)
_CHANGES: dict[str, Sequence[object]] = {
    # Of phrases and counts, which are drawn alike, one is as good as another: some are enough.
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
    "words": ((), tuple(TOPICS.values()), *((*_ALL * times, *TOPICS.values()) for times in (1, 3, 5))),
}


@lru_cache(maxsize=3)
def find_constant(difficulty: Difficulty) -> str:
    """Greedily: from a long and from a short text, the best value of one thing after the other, while it pays more."""
    payer = _Payer([make_task(random.Random(f"constant/{number}"), difficulty) for number in range(_TASKS)])
    return max((_climb(plan, payer) for plan in (_LONG, _SHORT)), key=payer.pay)


class _Payer:
    """What a text is paid over tasks. Most of their constraints are those of other tasks too: each is checked once."""

    def __init__(self, rows: list[TaskRow]) -> None:
        self._checks: list[Check] = []
        self._tasks: list[list[int]] = []
        places: dict[str, int] = {}
        for row in rows:
            checks = list(zip(row["instruction_id_list"], row["kwargs"], strict=True))
            for check in checks:
                if places.setdefault(str(check), len(places)) == len(self._checks):
                    self._checks.append(check)
            self._tasks.append([places[str(check)] for check in checks])

    def pay(self, text: str) -> tuple[float, float]:
        """The mean reward, and the mean part of a task's constraints that are met: where nothing is paid yet, what
        comes nearer to it is better."""
        if not is_varied(text):
            return 0.0, 0.0
        met = [CONSTRAINTS[name].follows(text, given) for name, given in self._checks]
        parts = [sum(met[place] for place in task) / len(task) for task in self._tasks]
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
