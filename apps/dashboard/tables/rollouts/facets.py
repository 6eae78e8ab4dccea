"""Counts of the most frequent values among matching rollouts, limited to the newest ones for speed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from apps.dashboard.tables.rollouts.listing import RolloutList
from apps.gym.outcomes import ENDED_BY_ITSELF
from apps.gym.setup_notices import NOTICES
from apps.rollouts.models import Collection, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import Between, Filter, Number, Term, Text, Value, write_term
from apps.rollouts.search.filters.filter_keys import FLAGS

LOOKED_AT = 10_000
SHOWN = 8
"""Maximum values shown per facet."""
_COLUMNS = (
    "collection_id",
    "status",
    "stop_reason",
    "error_kind",
    "reward",
    "masked",
    "ambiguous_path",
    "notices",
    "tool_errors",
    "flagged",
    "calls_without_usage",
    "attempt",
    "tools",
    "task__split",
    "task__tags_text",
)
_BUCKETS = (
    ("below 0", Number("<", 0.0)),
    ("0", Number("=", 0.0)),
    ("above 0, up to 0.5", Between(0.0, 0.5, above=True)),
    ("above 0.5, below 1", Between(0.5, 1.0, above=True, below=True)),
    ("1", Number("=", 1.0)),
    ("above 1", Number(">", 1.0)),
)


class Choice(NamedTuple):
    """A value of a facet: its label, its count if counted, and the URL that adds it, or removes it if selected."""

    label: str
    rollouts: int | None
    address: str
    is_chosen: bool


class Facet(NamedTuple):
    label: str
    choices: list[Choice]
    more: int
    """The number of values that are not shown."""


class Facets(NamedTuple):
    """`total` is exact unless `is_capped`: then the counts cover the newest `total` rollouts only."""

    total: int
    is_capped: bool
    facets: list[Facet]


def read_facets(there: RolloutList, rollouts: RolloutQuerySet) -> Facets:
    """Return the facets of the matching rollouts, with one statement."""
    rows = list(there.narrow(rollouts).order_by("-pk").values_list(*_COLUMNS, named=True)[: LOOKED_AT + 1])
    is_capped = len(rows) > LOOKED_AT
    counted = _count(rows[:LOOKED_AT])
    counted["model"] = _models(counted.pop("collection"))
    facets = [facet for key, label in _LABELS.items() if (facet := _facet(there, key, label, counted[key]))]
    return Facets(min(len(rows), LOOKED_AT), is_capped, facets)


_LABELS = {
    "status": "Status",
    "reward": "Reward",
    "stop": "Stop reason",
    "error": "Error",
    "flag": "Flags",
    "notice": "Set-up notices",
    "tool": "Tools",
    "model": "Model",
    "split": "Split",
    "tag": "Tags",
}


def _count(rows: Iterable[Any]) -> dict[str, Counter[Any]]:
    counted: dict[str, Counter[Any]] = {key: Counter() for key in (*_LABELS, "collection")}
    for row in rows:
        counted["collection"][row.collection_id] += 1
        counted["status"][row.status] += 1
        counted["stop"][row.stop_reason] += 1
        counted["error"][row.error_kind] += 1
        counted["split"][row.task__split] += 1
        counted["tool"].update(row.tools.keys())
        counted["notice"].update(row.notices.split())
        if row.reward is not None:
            counted["reward"][_bucket(row.reward)] += 1
        if row.task__tags_text:
            counted["tag"].update(set(row.task__tags_text.split("\n")))
        for flag, holds in (
            ("truncated", row.stop_reason not in {"", *ENDED_BY_ITSELF}),
            ("tool_error", row.tool_errors > 0),
            ("credentials", row.flagged),
            ("no_usage", row.calls_without_usage > 0),
            ("retried", row.attempt > 1),
            ("masked", row.masked != ""),
            ("ambiguous", row.ambiguous_path),
            ("unscored", row.reward is None and row.status == "completed"),
        ):
            if holds:
                counted["flag"][flag] += 1
    for each in counted.values():
        del each[""]
    return counted


def _bucket(reward: float) -> Value:
    edges_passed = (reward >= 0, reward > 0, reward > 0.5, reward >= 1, reward > 1)
    return _BUCKETS[sum(edges_passed)][1]


def _models(by_collection: Counter[int]) -> Counter[str]:
    slugs = Collection.objects.filter(pk__in=by_collection).values_list("pk", "policy_model__slug")
    found: Counter[str] = Counter()
    for pk, slug in slugs:
        found[slug] += by_collection[pk]
    return found


def _facet(there: RolloutList, key: str, label: str, counted: Counter[Any]) -> Facet | None:
    chosen = [value for term in there.parsed.terms if term.key == key and not term.negated for value in term.values]
    values = list(_values(key, counted))
    # A selected value stays visible even if nothing matches, so that it can be removed.
    known = {each for _, each, _ in values}
    unmatched = [
        (_label(key, write_term(Term(key, (value,))).partition(":")[2]), value, None)
        for value in chosen
        if value not in known
    ]
    shown: list[tuple[str, Value, int | None]] = [
        *values[:SHOWN],
        *(each for each in values[SHOWN:] if each[1] in chosen),
        *unmatched,
    ]
    choices = [
        Choice(name, count, _toggled(there, key, value), is_chosen=value in chosen) for name, value, count in shown
    ]
    return Facet(label, choices, max(0, len(values) - SHOWN)) if choices else None


def _values(key: str, counted: Counter[Any]) -> Iterator[tuple[str, Value, int]]:
    if key == "reward":
        yield from ((name, value, counted[value]) for name, value in _BUCKETS if counted[value])
        return
    for name, count in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
        yield _label(key, str(name)), Text(str(name)), count


def _label(key: str, text: str) -> str:
    if key == "notice":
        return NOTICES[text].title if text in NOTICES else text
    return FLAGS.get(text, text) if key == "flag" else text


def _toggled(there: RolloutList, key: str, value: Value) -> str:
    """Return the list URL without this value of the key, or with only its counted values, as a separate term.

    Adding them to an existing term would widen it.
    """
    terms, found = [], False
    for term in there.parsed.terms:
        if term.key != key or term.negated or value not in term.values:
            terms.append(term)
            continue
        found = True
        if values := tuple(each for each in term.values if each != value):
            terms.append(Term(key, values))
    if not found:
        terms.append(Term(key, (value,)))
    return there.address(parsed=Filter(tuple(terms)))
