"""Read the causes of the unsolved rollouts of a collection, most frequent first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection
from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from apps.gym.redaction.shortening import shorten
from apps.gym.traces.cause_texts import SOURCES, Source
from apps.rollouts.failures.cause_index import UNSOLVED, read_reasons
from apps.rollouts.models import Collection, FailureCause, RolloutCause, RolloutQuerySet, UnindexedRollout
from apps.rollouts.sql_arrays import in_ids

EXAMPLES = 3
MAX_GROUPS = 100
TEXT = 300
"""Characters of an example's reason."""
_TOP = 5
"""Tags and model versions shown for each group."""

# Only rollouts that are unsolved now: one that was retried keeps its causes until it is indexed again.
_NOW = """
    FROM rollouts_rolloutcause rc JOIN rollouts_rollout r ON r.id = rc.rollout_id
    WHERE {causes} AND (r.status = 'failed' OR r.reward < %s)
"""
_SIZES = f"""
    SELECT rc.cause_id, COUNT(*), COUNT(DISTINCT r.task_id) {_NOW} GROUP BY rc.cause_id
    ORDER BY 2 DESC, 1 LIMIT %s OFFSET %s
"""
_LABELS = f"""
    SELECT cause_id, t.tags_text, model_version, SUM(size) FROM (
        SELECT rc.cause_id, r.task_id, r.model_version, COUNT(*) AS size {_NOW} GROUP BY 1, 2, 3
    ) found JOIN tasks_task t ON t.id = found.task_id GROUP BY 1, 2, 3
"""  # noqa: S608 - _NOW is a constant


class LabelCount(NamedTuple):
    label: str
    rollouts: int


class Example(NamedTuple):
    """An unsolved rollout of a group.

    `text` is its reason as stored. `solved` is a rollout of the same task that solved it, None without one.
    """

    rollout: int
    task: int
    repeat: int
    reward: float | None
    text: str
    solved: int | None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Unsolved rollouts with the same cause.

    `tags` and `versions` are the most frequent tags of tasks and model versions, each with its number of rollouts.
    """

    cause: int
    text: str
    rollouts: int
    tasks: int
    tags: list[LabelCount]
    versions: list[LabelCount]
    examples: list[Example]


@dataclass(frozen=True, slots=True)
class Failures:
    """A page of the groups of one source.

    `unsolved` counts unsolved rollouts; `by_source` those that have a cause of each source. `waiting` counts finished
    rollouts of the collection that are not read yet. `next_offset` is None on the last page.
    """

    unsolved: int
    by_source: dict[Source, int]
    waiting: int
    source: Source
    groups: list[FailureGroup]
    next_offset: int | None


def read_failures(collection: Collection, by: Source | None = None, *, limit: int = 20, offset: int = 0) -> Failures:
    """Return the groups of a source; None: of the source with the most rollouts."""
    unsolved = collection.rollouts.filter(UNSOLVED)
    by_source = _count_sources(collection, unsolved)
    source: Source = by if by else max(SOURCES, key=by_source.__getitem__)
    sizes = _read_sizes(collection, source, limit=limit + 1, offset=offset)
    shown = sizes[:limit]
    causes = FailureCause.objects.in_bulk([cause for cause, _, _ in shown])
    labels = _read_labels(collection, [cause for cause, _, _ in shown])
    examples = _read_examples(unsolved, source, list(causes), collection=collection)
    return Failures(
        unsolved=unsolved.count(),
        by_source=by_source,
        waiting=UnindexedRollout.objects.filter(rollout__collection=collection).count(),
        source=source,
        groups=[
            FailureGroup(
                cause=cause,
                text=causes[cause].text,
                rollouts=rollouts,
                tasks=tasks,
                tags=[LabelCount(*each) for each in labels[cause][0].most_common(_TOP)],
                versions=[LabelCount(*each) for each in labels[cause][1].most_common(_TOP)],
                examples=examples.get(cause, []),
            )
            for cause, rollouts, tasks in shown
        ],
        next_offset=offset + limit if len(sizes) > limit else None,
    )


def _count_sources(collection: Collection, unsolved: RolloutQuerySet) -> dict[Source, int]:
    rows = RolloutCause.objects.filter(cause__collection=collection, rollout__in=unsolved).order_by()
    found = dict(rows.values_list("source").annotate(Count("rollout")))
    return {source: found.get(source, 0) for source in SOURCES}


def _read_sizes(collection: Collection, source: Source, *, limit: int, offset: int) -> list[tuple[int, int, int]]:
    """Return cause, rollouts and tasks of the largest groups."""
    causes = "rc.cause_id IN (SELECT id FROM rollouts_failurecause WHERE collection_id = %s AND source = %s)"
    with connection.cursor() as cursor:
        cursor.execute(_SIZES.format(causes=causes), [collection.pk, source, collection.solve_threshold, limit, offset])
        return list(cursor.fetchall())


def _read_labels(collection: Collection, causes: Sequence[int]) -> dict[int, tuple[Counter[str], Counter[str]]]:
    """Return the number of rollouts by tag, and by model version, of each cause."""
    found: dict[int, tuple[Counter[str], Counter[str]]] = {cause: (Counter(), Counter()) for cause in causes}
    if not causes:
        return found
    condition, ids = in_ids("rc.cause_id", causes)
    with connection.cursor() as cursor:
        cursor.execute(_LABELS.format(causes=condition), [ids, collection.solve_threshold])
        for cause, tags, version, size in cursor.fetchall():
            by_tag, by_version = found[cause]
            for tag in filter(None, tags.split("\n")):
                by_tag[tag] += int(size)
            if version:
                by_version[version] += int(size)
    return found


def _read_examples(
    unsolved: RolloutQuerySet, source: Source, causes: Sequence[int], *, collection: Collection
) -> dict[int, list[Example]]:
    """Return the first rollouts of each cause, of different tasks where possible."""
    place = Window(RowNumber(), partition_by=F("cause"), order_by=[F("rollout__repeat"), F("rollout")])
    rows = RolloutCause.objects.filter(cause__in=causes, rollout__in=unsolved).annotate(place=place)
    first = list(
        rows.filter(place__lte=EXAMPLES)
        .order_by("cause", "place")
        .values_list("cause", "rollout", "rollout__task", "rollout__repeat", "rollout__reward")
    )
    tasks = {task for _, _, task, _, _ in first}
    solving = collection.rollouts.filter(task__in=tasks, reward__gte=collection.solve_threshold)
    solved = dict(solving.order_by("task", "reward", "-pk").values_list("task", "pk"))
    reasons = read_reasons([rollout for _, rollout, *_ in first])
    texts = {reason.rollout: shorten(reason.text, TEXT) for reason in reasons if reason.source == source}
    found: dict[int, list[Example]] = {}
    for cause, rollout, task, repeat, reward in first:
        example = Example(rollout, task, repeat + 1, reward, texts.get(rollout, ""), solved.get(task))
        found.setdefault(cause, []).append(example)
    return found
