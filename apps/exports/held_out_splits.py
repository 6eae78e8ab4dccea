"""Dataset splits to export, and assignment of rows to files.

By default, held-out splits are never written to a training file. Equal prompts go to the same file.
"""

import hashlib
from collections.abc import Mapping, Sequence

from django.db.models import Count, Exists, OuterRef

from apps.exports.export_filters import FilterRefused, Filters
from apps.gym.exporters.protocol import Format
from apps.gym.traces.courses import question_fingerprint
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.filter_grammar import FilterRefused as NotUnderstood
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.tasks.models import Task

TRAIN = "train"
VALIDATION = "validation"
MAX_SHARE = 0.5


def split_of(task: Task, *, share: float, seed: int) -> str:
    """Return `train`, or `validation` for about `share` of the prompts.

    Depends only on prompt, share and seed: equal prompts get the same split in every version, dataset and export.
    """
    if share <= 0.0:
        return TRAIN
    digest = hashlib.sha256(f"{seed}:{question_fingerprint(task.row)}".encode()).digest()
    return VALIDATION if int.from_bytes(digest[:8]) / 2**64 < share else TRAIN


NAMED = 20
"""Maximum splits in an error message, largest first."""


def count_splits(collections: Sequence[int]) -> dict[str, int]:
    """Return the number of tasks of these collections by dataset split ("" for none), largest first.

    Empty if no task has a split.
    """
    versions = Collection.objects.filter(pk__in=collections).values_list("version_id", flat=True)
    tasks = Task.objects.filter(version__in=list(versions)).order_by()
    if not tasks.exclude(split="").exists():
        return {}
    attempted = Exists(Rollout.objects.filter(collection__in=collections, task=OuterRef("pk")))
    counts = tasks.filter(attempted).values_list("split").annotate(count=Count("pk")).order_by("-count", "split")
    found: dict[str, int] = dict(counts.values_list("split", "count"))
    return found if any(found) else {}


def default_splits(format: Format, available: Mapping[str, int], *, q: str, rollouts: bool) -> list[str] | None:
    """Return the default splits: `train` if the tasks have several splits.

    All splits if there is only one, if the format is not for training, or if `rollouts` or a split filter in `q` select
    explicitly. None if the user must choose.
    """
    if len(available) < 2 or format.keeps_all or rollouts or _filters_splits(q):
        return []
    return [TRAIN] if TRAIN in available else None


def checked_splits(format: Format, filters: Filters, collections: Sequence[int], *, given: bool) -> list[str]:
    """Return the splits to export; an empty list means all. Raise FilterRefused."""
    if given and not filters.splits:
        return []
    available = count_splits(collections)
    if not given:
        usual = default_splits(format, available, q=filters.q, rollouts=bool(filters.rollouts))
        if usual is None:
            raise FilterRefused(
                f"splits: the dataset has several splits and none is called {TRAIN}: {_describe_splits(available)}. "
                "Choose splits; an empty list means all."
            )
        return usual
    if unknown := [split for split in filters.splits if split not in available]:
        has = f"the tasks have {_describe_splits(available)}" if available else "the tasks have no splits"
        raise FilterRefused(f"splits: no task has the split {', '.join(map(split_label, unknown))}: {has}.")
    return list(dict.fromkeys(filters.splits))


def split_label(split: str) -> str:
    """Return the split name for messages. Tasks without a split have an empty name."""
    return split or "no split"


def _filters_splits(q: str) -> bool:
    try:
        return parse_filter(q).asks_for("split")
    except NotUnderstood:
        return False


def _describe_splits(available: Mapping[str, int]) -> str:
    names = ", ".join(f"{split_label(split)} ({count:,})" for split, count in list(available.items())[:NAMED])
    return f"{names}, …" if len(available) > NAMED else names
