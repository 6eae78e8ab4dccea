"""Read all attempts at each task of one or more collections, in chunks of tasks and in constant memory.

Tasks of different dataset versions with the same key count as one task. Whether their prompts are equal is checked
later, from the traces.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from django.db.models import Min

from apps.gym.pairs.pair_rule import Attempt
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task

TASKS = 100
"""Maximum tasks whose rollouts are read together; fewer if they have many rollouts."""
ROLLOUTS = 2_000

_COLUMNS = (
    "task_id",
    "id",
    "reward",
    "status",
    "error_kind",
    "stop_reason",
    "masked",
    "ambiguous_path",
    "notices",
    "redactions",
    "flagged",
    "output_tokens",
    "answer",
    "attempt",
)

Row = tuple[Any, ...]
"""The columns of `_COLUMNS`."""


@dataclass(slots=True, kw_only=True)
class TaskGroup:
    """The rollouts of one task, across dataset versions.

    `task_id` is the task in the first of these versions. `numbers` maps each rollout id to its final attempt number.
    """

    task_id: int
    attempts: list[Attempt] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)


def read_task_groups(collections: Sequence[Collection]) -> Iterator[list[TaskGroup]]:
    """Yield chunks of task groups. Tasks without rollouts are left out."""
    by_version: dict[int, list[Collection]] = defaultdict(list)
    for collection in collections:
        by_version[collection.version_id].append(collection)
    versions = list(by_version)
    size = max(1, min(TASKS, ROLLOUTS // max(1, sum(one.repeats for one in collections))))
    for place, version in enumerate(versions):
        tasks = Task.objects.filter(version_id=version).order_by("id")
        last = 0
        # Page by id: an open cursor would keep SQLite from truncating its write-ahead log.
        while chunk := list(tasks.filter(id__gt=last).values_list("id", "key")[:size]):
            last = chunk[-1][0]
            same = {task_id: task_id for task_id, _ in chunk}
            if len(versions) > 1:
                same = _map_versions(chunk, version, earlier=versions[:place], later=versions[place + 1 :])
            if task_groups := _read_rollouts(same, by_version, (chunk[0][0], last), version):
                yield task_groups


def _map_versions(
    chunk: Sequence[tuple[int, str]], version: int, *, earlier: Sequence[int], later: Sequence[int]
) -> dict[int, int]:
    """Map the ids of tasks with the same key to one task of this chunk.

    Tasks whose key exists in an earlier version are left out: they belong to a group of that version.
    """
    keys = [key for _, key in chunk if key]
    seen = set(Task.objects.filter(version_id__in=earlier, key__in=keys).values_list("key", flat=True))
    own = {task_id: key for task_id, key in chunk if key not in seen}
    # A version may contain a key twice. Only the first such task is grouped with other versions.
    same_keys = Task.objects.filter(version_id=version, key__in=[key for key in own.values() if key])
    first = dict(same_keys.order_by().values("key").annotate(first=Min("id")).values_list("key", "first"))
    leads = {key: task_id for task_id, key in own.items() if first.get(key) == task_id}
    others = Task.objects.filter(version_id__in=later, key__in=list(leads)).values_list("id", "key")
    return {**{task_id: task_id for task_id in own}, **{task_id: leads[key] for task_id, key in others}}


def _read_rollouts(
    same: dict[int, int], by_version: dict[int, list[Collection]], span: tuple[int, int], version: int
) -> list[TaskGroup]:
    task_groups: dict[int, TaskGroup] = {}
    own = Rollout.objects.filter(collection__in=by_version[version], task_id__gte=span[0], task_id__lte=span[1])
    rows = list(own.order_by("task_id", "id").values_list(*_COLUMNS))
    if foreign := [task_id for task_id in same if not span[0] <= task_id <= span[1]]:
        others = [one for key, several in by_version.items() if key != version for one in several]
        more = Rollout.objects.filter(collection__in=others, task_id__in=foreign)
        rows += more.order_by("task_id", "id").values_list(*_COLUMNS)
    for task_id, group in groupby(rows, key=lambda row: row[0]):
        if task_id in same:
            task_group = task_groups.setdefault(same[task_id], TaskGroup(task_id=same[task_id]))
            for row in group:
                _add_rollout(task_group, row)
    return list(task_groups.values())


def _add_rollout(task_group: TaskGroup, row: Row) -> None:
    columns = dict(zip(_COLUMNS, row, strict=True))
    number, redactions = columns.pop("attempt"), columns.pop("redactions")
    columns["flagged"] = columns["flagged"] or bool(redactions)
    del columns["task_id"]
    task_group.numbers[columns["id"]] = number
    task_group.attempts.append(Attempt(**columns))
