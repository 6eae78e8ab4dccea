"""Which rollouts and tasks an export takes: the filters, and what each format takes unless told otherwise."""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_type_hints

import msgspec

from apps.gym.exporters.protocol import Format, Makes
from apps.rollouts.search.filters.filter_grammar import FilterRefused as NotUnderstood
from apps.rollouts.search.filters.filter_parser import parse_filter


class FilterRefused(Exception):
    """A filter that cannot be; the message names it and what it takes."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What is None or false does not filter."""

    q: str = ""
    """Only rollouts that pass this filter, as it is typed above their table; of pairs both, of tasks those with one."""
    rollouts: list[int] = []
    """Only these, likewise."""
    min_reward: float | None = None
    """Of a pair, of the chosen one."""
    include_flagged: bool = False
    """Rollouts that had credentials in their traces, and that nobody has looked at since."""
    include_truncated: bool = False
    """Attempts that a limit cut: they teach no ending."""
    dedupe: bool = False
    """Of a task's attempts that said and did the same, the first alone."""
    per_task: int | None = None
    """The best so many of each task: by reward, then the shortest; of pairs, those of the largest margin."""
    max_rows: int | None = None
    reward_from: Literal["override", "verifier"] = "override"
    """Whose reward counts, for what is taken and in the rows: where people set one, theirs; or always the verifier's.
    A pair has those that counted when it was made: its set's own rule says whose."""
    min_solve_rate: float | None = None
    max_solve_rate: float | None = None
    """Of a task's attempts with a reward, the share that solved it."""
    drop_zero_variance: bool = False
    """Leave tasks out whose attempts all got the same reward: they teach a policy nothing."""
    splits: list[str] = []
    """Only tasks of these splits of the dataset; left out of an order, `train` where there are others as well."""
    include_rejected: bool = False
    """Also pairs that somebody rejected."""
    only_accepted: bool = False
    """Only pairs that somebody accepted."""
    sources: list[Literal["reward", "override", "verdict"]] = []
    """Only pairs whose preference comes from there: rewards, rewards that people set, or people's verdicts."""


_DEFAULTS: dict[Makes, dict[str, Any]] = {
    # A demonstration is a rollout worth imitating; NeMo Gym's own tutorial filters at 0.7 to 0.8.
    "demonstrations": {"min_reward": 0.7, "dedupe": True},
    "labels": {"dedupe": True},
    "preferences": {},
    "tasks": {},
    "scored": {"include_truncated": True},
}
_OF_ATTEMPTS = {"min_reward", "include_flagged", "include_truncated", "dedupe"}
_OF_PAIRS = {"include_rejected", "only_accepted", "sources"}
_APPLY: dict[Makes, frozenset[str]] = {
    "demonstrations": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "labels": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "scored": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "preferences": frozenset(
        {"q", "rollouts", "min_reward", "include_flagged", "per_task", "max_rows", "splits", *_OF_PAIRS}
    ),
    "tasks": frozenset(get_type_hints(Filters)) - _OF_ATTEMPTS - _OF_PAIRS - {"per_task"},
}
_SHARES = {"min_solve_rate", "max_solve_rate"}
_COUNTS = {"per_task", "max_rows"}
MAX_COUNT = 1_000_000_000
MAX_NAMED = 10_000
"""Rollouts that are named one by one."""


def filters_of(format: Format) -> frozenset[str]:
    """The names of those that mean something for the format."""
    return _APPLY[format.makes]


def resolve_filters(format: Format, given: Mapping[str, Any]) -> Filters:
    """The filters of an export, with the defaults of what the format makes. Raises FilterRefused."""
    for name in given:
        if name not in filters_of(format):
            has = ", ".join(sorted(filters_of(format)))
            raise FilterRefused(f"{format.title} has no filter {name}; it has: {has}.")
    try:
        filters = msgspec.convert({**_DEFAULTS[format.makes], **given}, Filters)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise FilterRefused(f"{where.rstrip('`')}: {what}.") from None
    _check_numbers(filters)
    _check_selection(filters)
    return filters


def kept_filters(format: Format, filters: Filters) -> dict[str, Any]:
    """As an export keeps them: those that the format has, and that filter."""
    given = {name: value for name, value in msgspec.structs.asdict(filters).items() if name in filters_of(format)}
    # By identity: zero is a reward, and equals False.
    return {name: value for name, value in given.items() if value not in (None, "", []) and value is not False}


def _check_selection(filters: Filters) -> None:
    try:
        parse_filter(filters.q)
    except NotUnderstood as refusal:
        raise FilterRefused(f"q: at character {refusal.start + 1}: {refusal}") from None
    if len(filters.rollouts) > MAX_NAMED:
        raise FilterRefused(f"rollouts are at most {MAX_NAMED:,} numbers: select more by a filter, in q.")
    if not all(0 < one < 2**63 for one in filters.rollouts):
        raise FilterRefused("rollouts are numbers of rollouts.")


def _check_numbers(filters: Filters) -> None:
    for name in _COUNTS:
        count = getattr(filters, name)
        if count is not None and not 1 <= count <= MAX_COUNT:
            raise FilterRefused(f"{name} is a whole number from 1 up, or null for any.")
    for name in _SHARES:
        share = getattr(filters, name)
        if share is not None and not 0.0 <= share <= 1.0:
            raise FilterRefused(f"{name} is a share from 0 to 1, or null for any.")
    if filters.min_reward is not None and not math.isfinite(filters.min_reward):
        raise FilterRefused("min_reward is a finite number, or null for any reward.")
    if (filters.min_solve_rate or 0.0) > (1.0 if filters.max_solve_rate is None else filters.max_solve_rate):
        raise FilterRefused("min_solve_rate is at most max_solve_rate.")
