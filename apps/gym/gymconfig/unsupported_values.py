"""What YAML can say and nothing here can keep: half a character, a number without an end, a name with a dot."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from apps.gym.gymconfig.config_problems import Problem
from apps.gym.gymconfig.merging import Merged
from apps.gym.storable import find_unstorable

_MOST_PROBLEMS = 50
_LARGEST = 2**63


def find_unusable(merged: Merged) -> list[Problem]:
    """The first of them, with their keys."""
    found: list[Problem] = []
    for key, told in _look(merged.tree):
        found.append(Problem(merged.file_of(key), key, told))
        if len(found) == _MOST_PROBLEMS:
            break
    return found


def _look(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if "." in name:
            yield _plain(name), "has a dot in its name, which everywhere else stands for a level below"
        yield from look_at(name, value)


def look_at(place: str, given: Any) -> Iterator[tuple[str, str]]:
    """Keys within a value, and what is wrong there."""
    waiting: deque[tuple[str, Any]] = deque([(place, given)])
    while waiting:
        key, value = waiting.popleft()
        if isinstance(value, dict):
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{key}[{place}]", inner) for place, inner in enumerate(value)]
        if find_unstorable(key) is not None:
            yield _plain(key), "has a zero byte or half a surrogate pair in its name"
        elif isinstance(value, str) and find_unstorable(value) is not None:
            yield key, "holds a zero byte or half a surrogate pair"
        elif isinstance(value, float) and not math.isfinite(value):
            yield key, "is not a finite number"
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            yield key, "is a number of more than 64 bits"


def _plain(name: str) -> str:
    return name.encode(errors="replace").decode().replace("\0", "�")
