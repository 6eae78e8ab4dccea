"""Filters of exports, and their defaults by format."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from apps.gym.attempt_options import REWARD_SOURCES, IncludeAmbiguous, IncludeNoticed, IncludeTruncated
from apps.gym.exporters.protocol import Format, RowKind
from apps.gym.specs import Option
from apps.rollouts.models import RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import FilterRefused as NotUnderstood
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter
from apps.rollouts.search.filters.filter_sql import filter_rollouts

MAX_COUNT = 1_000_000_000


class FilterRefused(Exception):
    """Raised for an invalid filter. The message names the filter and its valid values."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of an export. None and False do not filter."""

    q: Annotated[
        str,
        Option(
            "Filter",
            "A rollout filter: reward:>0.5 -flag:truncated. A pair matches if both rollouts match. A task matches if "
            "any rollout matches.",
            length=MAX_LENGTH,
        ),
    ] = ""
    rollouts: Annotated[
        list[int], Option("Only these rollouts", "Rollout numbers, separated by spaces; empty: all")
    ] = []
    reward_from: Annotated[
        Literal["override", "verifier"],
        Option(
            "Rewards",
            "Reward used by filters and written to rows. Pairs keep the rewards that they were built with.",
            names=REWARD_SOURCES,
        ),
    ] = "override"
    min_reward: Annotated[
        float | None,
        Option("Minimum reward", "For pairs, applies to the chosen rollout. Default for SFT formats: 0.7", none="any"),
    ] = None
    per_task: Annotated[
        int | None,
        Option(
            "Rollouts per task",
            "Keeps the best: highest reward, then shortest; for pairs, largest margin",
            low=1,
            high=MAX_COUNT,
            none="all",
            example=4,
        ),
    ] = None
    max_rows: Annotated[int | None, Option("Maximum rows", low=1, high=MAX_COUNT, none="all rows")] = None
    min_solve_rate: Annotated[
        float | None,
        Option("Minimum solve rate", "Share of a task's rollouts that solved it", low=0, high=1, none="any"),
    ] = None
    max_solve_rate: Annotated[
        float | None,
        Option(
            "Maximum solve rate", "A value below 1 leaves out tasks that are always solved", low=0, high=1, none="any"
        ),
    ] = None
    splits: Annotated[
        list[str],
        Option("Splits", "Only tasks of these splits. Default: only train if the dataset has several splits."),
    ] = []
    sources: Annotated[
        list[Literal["reward", "override", "verdict"]], Option("Sources of preferences", "None selected: all sources")
    ] = []
    only_accepted: Annotated[bool, Option("Accepted pairs only", "Leave out pairs that no reviewer accepted")] = False
    include_rejected: Annotated[bool, Option("Include rejected pairs", "Keep pairs that a reviewer rejected")] = False
    dedupe: Annotated[bool, Option("Deduplicate", "Keep the first of identical rollouts of a task")] = False
    drop_zero_variance: Annotated[
        bool,
        Option(
            "Leave out tasks without variance",
            "Tasks whose rollouts all have the same reward give no learning signal",
        ),
    ] = False
    include_truncated: IncludeTruncated = False
    include_ambiguous: IncludeAmbiguous = False
    include_noticed: IncludeNoticed = False
    include_flagged: Annotated[
        bool,
        Option(
            "Include rollouts with redacted credentials",
            "If off, the export is refused until their redactions are reviewed",
        ),
    ] = False


_DEFAULTS: dict[RowKind, dict[str, Any]] = {
    # Demonstrations are rollouts worth imitating; NeMo Gym's tutorial filters at 0.7 to 0.8.
    "demonstrations": {"min_reward": 0.7, "dedupe": True},
    "labels": {"dedupe": True},
    "preferences": {},
    "tasks": {},
    "scored": {"include_truncated": True, "include_noticed": True},
}
_OF_ATTEMPTS = {"min_reward", "include_flagged", "include_truncated", "include_ambiguous", "include_noticed", "dedupe"}
_OF_PAIRS = {"include_rejected", "only_accepted", "sources"}
_APPLY: dict[RowKind, frozenset[str]] = {
    "demonstrations": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "labels": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "scored": frozenset(get_type_hints(Filters)) - _OF_PAIRS,
    "preferences": frozenset(
        {
            "q",
            "rollouts",
            "min_reward",
            "include_flagged",
            "include_ambiguous",
            "include_noticed",
            "per_task",
            "max_rows",
            "splits",
            *_OF_PAIRS,
        }
    ),
    "tasks": frozenset(get_type_hints(Filters)) - _OF_ATTEMPTS - _OF_PAIRS - {"per_task"},
}
_SHARES = {"min_solve_rate", "max_solve_rate"}
_COUNTS = {"per_task", "max_rows"}
MAX_NAMED = 10_000
"""Maximum number of rollouts selected by id."""


def filters_of(format: Format) -> frozenset[str]:
    """Return the names of the filters that apply to the format."""
    return _APPLY[format.row_kind]


def resolve_filters(format: Format, given: Mapping[str, Any]) -> Filters:
    """Return the filters of an export, with the defaults of its format. Raise FilterRefused."""
    for name in given:
        if name not in filters_of(format):
            has = ", ".join(sorted(filters_of(format)))
            raise FilterRefused(f"{format.title} has no filter {name}. Choose one of: {has}.")
    try:
        filters = msgspec.convert({**_DEFAULTS[format.row_kind], **given}, Filters)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise FilterRefused(f"{where.rstrip('`')}: {what}.") from None
    if filters.only_accepted and filters.include_rejected:
        raise FilterRefused("only_accepted leaves out rejected pairs: choose it or include_rejected, not both.")
    _check_numbers(filters)
    _check_selection(filters)
    return filters


def active_filters(format: Format, filters: Filters) -> dict[str, Any]:
    """Return the active filters that the format supports, as stored with an export."""
    given = {name: value for name, value in msgspec.structs.asdict(filters).items() if name in filters_of(format)}
    # Compare by identity: a reward of 0 equals False.
    return {name: value for name, value in given.items() if value not in (None, "", []) and value is not False}


def _check_selection(filters: Filters) -> None:
    try:
        parse_filter(filters.q)
    except NotUnderstood as refusal:
        raise FilterRefused(f"q: at character {refusal.start + 1}: {refusal}") from None
    if len(filters.rollouts) > MAX_NAMED:
        raise FilterRefused(f"At most {MAX_NAMED:,} rollout numbers. To select more, use the filter (q).")
    if not all(0 < one < 2**63 for one in filters.rollouts):
        raise FilterRefused("rollouts must be a list of rollout numbers.")


def _check_numbers(filters: Filters) -> None:
    for name in _COUNTS:
        count = getattr(filters, name)
        if count is not None and not 1 <= count <= MAX_COUNT:
            raise FilterRefused(f"{name} must be a whole number of at least 1, or null.")
    for name in _SHARES:
        share = getattr(filters, name)
        if share is not None and not 0.0 <= share <= 1.0:
            raise FilterRefused(f"{name} must be a number from 0 to 1, or null.")
    if filters.min_reward is not None and not math.isfinite(filters.min_reward):
        raise FilterRefused("min_reward must be a finite number or null.")
    if (filters.min_solve_rate or 0.0) > (1.0 if filters.max_solve_rate is None else filters.max_solve_rate):
        raise FilterRefused("min_solve_rate must not exceed max_solve_rate.")


def select_rollouts(rollouts: RolloutQuerySet, filters: Filters) -> RolloutQuerySet:
    """Return the rollouts selected by `q` and ids; all of them without these filters."""
    if filters.rollouts:
        rollouts = rollouts.filter(pk__in=filters.rollouts)
    return filter_rollouts(rollouts, filters.q)


def find_unselected(rollouts: RolloutQuerySet, ids: Iterable[int], filters: Filters) -> frozenset[int]:
    """Return the ids that are not selected, with at most one query. `rollouts` are the rows to search."""
    if not filters.rollouts and not filters.q:
        return frozenset()
    return frozenset(ids) - frozenset(select_rollouts(rollouts, filters).order_by().values_list("pk", flat=True))
