"""Find the verdict in what a judge wrote: a JSON object with the mark it was given, alone, fenced, or amid text."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from apps.gym.judging.scale import VerdictUnreadable

MAX_READ = 32_000
"""Characters at the end of a reply in which a verdict is looked for: models think first and conclude last."""
_MAX_OBJECTS = 64

Found = TypeVar("Found")


def read_verdict(
    text: str, mark: str, read: Callable[[dict[str, Any]], Found], said: Callable[[Found], object]
) -> Found:
    """What `read` makes of the objects with the mark. Raises VerdictUnreadable: for none, and for several that differ.

    An object without the mark is what the judge quotes of what it read. `said` is what two verdicts must have in
    common to be one.
    """
    found: list[Found] = []
    problem, unmarked = "", False
    for answer in _objects(text[-MAX_READ:].rpartition("</think>")[2]):
        if answer.get("mark") != mark:
            unmarked = True
            continue
        try:
            found.append(read(answer))
        except VerdictUnreadable as why:
            problem = str(why)
    if not found:
        no_mark = "no JSON object in the answer has the `mark` that you were given"
        raise VerdictUnreadable(problem or (no_mark if unmarked else "there is no JSON object in the answer"))
    if any(said(other) != said(found[-1]) for other in found):
        raise VerdictUnreadable("the answer gives more than one verdict, and they differ")
    return found[-1]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects, in order."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = text.find("{")
    for _ in range(_MAX_OBJECTS):
        if at < 0:
            return
        end = at + 1
        try:
            parsed, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(parsed, dict):
                yield parsed
        at = text.find("{", end)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
