"""Compare two versions of a dataset by task keys and row hashes."""

from typing import Any

import orjson
from django.db.models import Exists, OuterRef, QuerySet

from apps.tasks.models import DatasetVersion, Task, TaskQuerySet

KINDS = ("added", "removed", "changed")


def count_changes(*, old: DatasetVersion, new: DatasetVersion) -> dict[str, int]:
    """Return {added, removed, changed, unchanged}. Relative to its base version, use the counts from loading."""
    if new.base_id == old.pk and new.changes:
        stored = new.changes
        named = {"added": "new", "removed": "removed", "changed": "updated", "unchanged": "unchanged"}
        return {name: stored.get(key, 0) for name, key in named.items()}
    counts = {kind: find_changes(old=old, new=new, kind=kind).count() for kind in KINDS}
    return {**counts, "unchanged": new.task_count - counts["added"] - counts["changed"]}


def find_changes(*, old: DatasetVersion, new: DatasetVersion, kind: str) -> TaskQuerySet:
    """Return the tasks of one kind. Removed tasks are from the old version, others from the new one."""
    if kind == "removed":
        return Task.objects.filter(version=old).exclude(_same_key(new))
    tasks = Task.objects.filter(version=new)
    if kind == "added":
        return tasks.exclude(_same_key(old))
    return tasks.filter(_same_key(old)).exclude(_same_key(old, row_hash=OuterRef("row_hash")))


def _same_key(version: DatasetVersion, **also: OuterRef) -> Exists:
    return Exists(Task.objects.filter(version=version, key=OuterRef("key"), **also))


def with_counterparts(tasks: "QuerySet[Task] | list[Task]", *, old: DatasetVersion) -> list[tuple[Task, Task | None]]:
    """Return each changed task with the task that it replaces."""
    page = list(tasks)
    before: dict[str, Task] = {}
    for task in Task.objects.filter(version=old, key__in=[task.key for task in page]).order_by("-index"):
        before[task.key] = task
    return [(task, before.get(task.key)) for task in page]


def changed_fields(old_row: str, new_row: str) -> list[str]:
    """Return the names of the top-level fields that differ."""
    old, new = orjson.loads(old_row), orjson.loads(new_row)
    return [name for name in dict.fromkeys([*old, *new]) if _value(old, name) != _value(new, name)]


def _value(row: dict[str, Any], name: str) -> bytes:
    return orjson.dumps(row[name], option=orjson.OPT_SORT_KEYS) if name in row else b""
