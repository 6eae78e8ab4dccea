"""Which rollouts and tasks an export takes: the filters, and what each format takes unless told otherwise."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from apps.gym.exporters.protocol import Format, Makes
from apps.gym.specs import Option
from apps.rollouts.search.filters.filter_grammar import FilterRefused as NotUnderstood
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter

MAX_COUNT = 1_000_000_000


class FilterRefused(Exception):
    """A filter that cannot be; the message names it and what it takes."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What is None or false does not filter."""

    q: Annotated[
        str,
        Option(
            "Filter",
            "As above the table of rollouts: reward:>0.5 -flag:truncated. Pairs need both rollouts, tasks one",
            length=MAX_LENGTH,
        ),
    ] = ""
    rollouts: Annotated[
        list[int], Option("Only these rollouts", "Their numbers, separated by spaces; left empty, all")
    ] = []
    reward_from: Annotated[
        Literal["override", "verifier"],
        Option(
            "Rewards",
            "For filters and rows; pairs keep the rewards they were built with",
            names={"override": "Overrides first", "verifier": "From the verifier"},
        ),
    ] = "override"
    min_reward: Annotated[float | None, Option("Minimum reward", "Of a pair, of the chosen rollout", none="any")] = None
    per_task: Annotated[
        int | None,
        Option(
            "Best per task",
            "By reward, then the shortest; pairs by margin",
            low=1,
            high=MAX_COUNT,
            none="all",
            example=4,
        ),
    ] = None
    max_rows: Annotated[int | None, Option("Maximum rows", low=1, high=MAX_COUNT, none="all rows")] = None
    min_solve_rate: Annotated[
        float | None,
        Option("Minimum solve rate", "Share of a task's attempts that solved it", low=0, high=1, none="any"),
    ] = None
    max_solve_rate: Annotated[
        float | None,
        Option("Maximum solve rate", "Below 1 leaves out tasks that are always solved", low=0, high=1, none="any"),
    ] = None
    splits: Annotated[
        list[str],
        Option("Splits", "Only tasks of these splits; left out, train if the dataset has several splits"),
    ] = []
    sources: Annotated[
        list[Literal["reward", "override", "verdict"]], Option("Sources of preferences", "None checked takes all")
    ] = []
    only_accepted: Annotated[bool, Option("Accepted pairs only", "Pairs that a reviewer accepted")] = False
    include_rejected: Annotated[bool, Option("Include rejected pairs", "Pairs that a reviewer rejected")] = False
    dedupe: Annotated[bool, Option("Deduplicate", "Of identical attempts at a task, keep the first")] = False
    drop_zero_variance: Annotated[
        bool, Option("Skip tasks without variance", "All attempts got the same reward, so a policy learns nothing")
    ] = False
    include_truncated: Annotated[
        bool, Option("Include truncated attempts", "Attempts that hit a limit; models do not learn to stop from them")
    ] = False
    include_flagged: Annotated[
        bool, Option("Include flagged rollouts", "Their traces had credentials; the redactions stay")
    ] = False


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
