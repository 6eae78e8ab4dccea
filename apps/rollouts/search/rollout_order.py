"""By what rollouts can be sorted, and which rows have a value there: one list for pages and API."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from apps.rollouts.models import ALL_TOKENS, Rollout
from apps.rollouts.search.filters.filter_grammar import Term, Text

_ENDED = {Rollout.Status.COMPLETED, Rollout.Status.FAILED, Rollout.Status.CANCELLED}


@dataclass(frozen=True, slots=True)
class Sort:
    """`values` is what is compared; `marker` is null where a row has no value, and such rows stand last."""

    values: Any
    marker: str = "finished_at"


SORTS: dict[str, Sort] = {
    "reward": Sort(F("reward"), "reward"),
    "steps": Sort(F("turns")),
    "calls": Sort(F("tool_calls")),
    "tokens": Sort(ALL_TOKENS),
    "seconds": Sort(F("duration")),
    "cost": Sort(F("cost")),
}
"""Beside `id`, by the words of filters. Each has an index of its own: see Rollout.Meta."""


def expect_values(sort: Sort, terms: Iterable[Term]) -> tuple[bool, bool]:
    """Whether a filter leaves rows with a value, and rows without one: to look for what is not there costs a walk."""
    some, none = True, True
    for term in terms:
        if term.negated:
            continue
        statuses = {value.text for value in term.values if isinstance(value, Text)}
        if term.key == "reward":
            none = False
        elif term.key == "error":
            some = some and sort.marker != "reward"
        elif term.key == "status" and sort.marker == "reward":
            some = some and Rollout.Status.COMPLETED in statuses
        elif term.key == "status":
            some = some and bool(statuses & _ENDED)
            none = none and not statuses <= _ENDED
    return some, none
