"""Find the verdict in a judge's reply: a JSON object with the given mark, alone, fenced, or within text."""

import bisect
import contextlib
import itertools
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from apps.gym.judging.scale import VerdictUnreadable
from apps.gym.traces.items import refuse_constant

MAX_READ = 32_000
"""Number of characters searched at the end of a reply: models reason first and conclude last."""
_MAX_MARKS = 64
_MAX_WORK = 4 * MAX_READ
"""Maximum characters to parse without success for one mark: each try may read to the end of the text."""
_OPENING = re.compile(r'\{\s*"')
_THOUGHT_ENDS = "</think>"

Found = TypeVar("Found")


def read_verdict(
    text: str, mark: str, read: Callable[[dict[str, Any]], Found], value_of: Callable[[Found], object]
) -> Found:
    """Return the verdict that `read` makes of the objects with the mark.

    Raises VerdictUnreadable if there is none, or if several differ.

    Objects without the mark are quotations from the judge's input. Two verdicts are equal if
    `value_of` returns the same value for both.
    """
    text = text[-MAX_READ:]
    found: list[Found] = []
    problem = ""
    for answer in _concluded(text, _find_marked(text, mark)):
        try:
            found.append(read(answer.fields))
        except VerdictUnreadable as why:
            problem = str(why)
    if not found:
        no_mark = "no JSON object in the answer has the `mark` that you were given"
        no_object = "there is no JSON object in the answer"
        raise VerdictUnreadable(problem or (no_mark if _holds_object(text) else no_object))
    if any(value_of(other) != value_of(found[-1]) for other in found):
        raise VerdictUnreadable("the answer gives more than one verdict, and they differ")
    return found[-1]


class _Marked(NamedTuple):
    start: int
    end: int
    fields: dict[str, Any]


def _find_marked(text: str, mark: str) -> list[_Marked]:
    """Return the outermost objects with the mark, in order.

    The search goes backwards from each mark, so that quoted text cannot exhaust it.
    """
    openings = [match.start() for match in _OPENING.finditer(text)]
    places = [match.start() for match in re.finditer(rf'"mark"\s*:\s*"{re.escape(mark)}"', text)]
    around = [_object_around(text, place, mark, openings) for place in places[-_MAX_MARKS:]]
    found = [marked for marked in around if marked]
    return [
        marked for marked in found if not any(other.start < marked.start and marked.end < other.end for other in found)
    ]


def _object_around(text: str, place: int, mark: str, openings: list[int]) -> _Marked | None:
    """Return the innermost object around this place that has the mark as its own key."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    left = _MAX_WORK
    for at in reversed(openings[: bisect.bisect_left(openings, place)]):
        end = len(text)
        try:
            parsed, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            end = error.pos
        except (ValueError, RecursionError):
            pass
        else:
            if end > place and isinstance(parsed, dict) and parsed.get("mark") == mark:
                return _Marked(at, end, parsed)
        left -= end - at + 1
        if left < 0:
            break
    return None


def _concluded(text: str, found: list[_Marked]) -> list[_Marked]:
    """Return the objects after the reasoning. A tag inside an object does not end the reasoning."""
    ends = [
        match.end()
        for match in re.finditer(_THOUGHT_ENDS, text)
        if not any(marked.start < match.start() < marked.end for marked in found)
    ]
    if not ends:
        return found
    for end in reversed(ends):
        if after := [marked for marked in found if marked.start >= end]:
            return after
    # An answer that comes first has no reasoning before it: later tags are quotations.
    is_first = bool(found) and text[: found[0].start].strip() in ("", "```", "```json")
    return found if is_first else []


def _holds_object(text: str) -> bool:
    """Return True if the text has any JSON object, to explain the problem."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    for match in itertools.islice(_OPENING.finditer(text), _MAX_MARKS):
        with contextlib.suppress(ValueError, RecursionError):
            decoder.raw_decode(text, match.start())
            return True
    return False
