"""Which of the dataset's splits an export takes: what is held out goes into no file for training unasked."""

from collections.abc import Mapping, Sequence

from django.db.models import Count, Exists, OuterRef

from apps.exports.export_filters import FilterRefused, Filters
from apps.exports.file_splits import TRAIN
from apps.gym.exporters.protocol import Format
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.filter_grammar import FilterRefused as NotUnderstood
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.tasks.models import Task

NAMED = 20
"""Splits that a refusal tells, the largest first."""


def count_splits(collections: Sequence[int]) -> dict[str, int]:
    """The tasks of these collections by the split that they are of in their dataset, the largest first; those of none
    are under "". Empty where no task is of any."""
    versions = Collection.objects.filter(pk__in=collections).values_list("version_id", flat=True)
    tasks = Task.objects.filter(version__in=list(versions)).order_by()
    if not tasks.exclude(split="").exists():
        return {}
    attempted = Exists(Rollout.objects.filter(collection__in=collections, task=OuterRef("pk")))
    counts = tasks.filter(attempted).values_list("split").annotate(count=Count("pk")).order_by("-count", "split")
    found: dict[str, int] = dict(counts.values_list("split", "count"))
    return found if any(found) else {}


def usual_splits(format: Format, there: Mapping[str, int], *, q: str, rollouts: bool) -> list[str] | None:
    """What is taken where nobody names splits: `train`, where tasks of others were attempted as well. All (none named)
    where there is nothing to choose between, where the format is none to train on, and where `rollouts` are named or
    `q` filters their splits. None where one has to say."""
    if len(there) < 2 or format.keeps_all or rollouts or _filters_splits(q):
        return []
    return [TRAIN] if TRAIN in there else None


def checked_splits(format: Format, filters: Filters, collections: Sequence[int], *, given: bool) -> list[str]:
    """The splits that the export takes; an empty list takes all. Raises FilterRefused."""
    if given and not filters.splits:
        return []
    there = count_splits(collections)
    if not given:
        usual = usual_splits(format, there, q=filters.q, rollouts=bool(filters.rollouts))
        if usual is None:
            raise FilterRefused(
                f"splits: the tasks are of several, and none is called {TRAIN}: {_told(there)}. Name those to write; "
                "an empty list takes all."
            )
        return usual
    if unknown := [split for split in filters.splits if split not in there]:
        has = f"they are of {_told(there)}" if there else "they are of none"
        raise FilterRefused(f"splits: no task is of {', '.join(map(named_split, unknown))}: {has}.")
    return list(dict.fromkeys(filters.splits))


def named_split(split: str) -> str:
    """As people read it: tasks of no split have an empty one."""
    return split or "no split"


def _filters_splits(q: str) -> bool:
    try:
        return parse_filter(q).asks_for("split")
    except NotUnderstood:
        return False


def _told(there: Mapping[str, int]) -> str:
    told = ", ".join(f"{named_split(split)} ({count:,})" for split, count in list(there.items())[:NAMED])
    return f"{told}, …" if len(there) > NAMED else told
