"""What one version of a dataset has that another has not: by the keys of tasks and the hashes of their rows."""

from typing import Any

import orjson
from django.db.models import Exists, OuterRef, QuerySet

from apps.tasks.models import DatasetVersion, Task, TaskQuerySet

KINDS = ("added", "removed", "changed")


def count_changes(*, old: DatasetVersion, new: DatasetVersion) -> dict[str, int]:
    """{added, removed, changed, unchanged}; for a version against its own base they were counted as it was loaded."""
    if new.base_id == old.pk and new.changes:
        stored = new.changes
        named = {"added": "new", "removed": "removed", "changed": "updated", "unchanged": "unchanged"}
        return {name: stored.get(key, 0) for name, key in named.items()}
    counts = {kind: find_changes(old=old, new=new, kind=kind).count() for kind in KINDS}
    return {**counts, "unchanged": new.task_count - counts["added"] - counts["changed"]}


def find_changes(*, old: DatasetVersion, new: DatasetVersion, kind: str) -> TaskQuerySet:
    """The tasks of one kind: of the old version those that were removed, else of the new one."""
    if kind == "removed":
        return _tasks(old).exclude(_same_key(new))
    if kind == "added":
        return _tasks(new).exclude(_same_key(old))
    return _tasks(new).filter(_same_key(old)).exclude(_same_row(old))


def _tasks(version: DatasetVersion) -> TaskQuerySet:
    return Task.objects.filter(version=version)


def _same_key(version: DatasetVersion) -> Exists:
    return Exists(_tasks(version).filter(key=OuterRef("key")))


def _same_row(version: DatasetVersion) -> Exists:
    return Exists(_tasks(version).filter(key=OuterRef("key"), row_hash=OuterRef("row_hash")))


def with_counterparts(tasks: "QuerySet[Task] | list[Task]", *, old: DatasetVersion) -> list[tuple[Task, Task | None]]:
    """Each changed task with the one that it replaces."""
    page = list(tasks)
    before: dict[str, Task] = {}
    for task in _tasks(old).filter(key__in=[task.key for task in page]).order_by("-index"):
        before[task.key] = task
    return [(task, before.get(task.key)) for task in page]


def changed_fields(old_row: str, new_row: str) -> list[str]:
    """The names of the top-level fields that differ."""
    old, new = orjson.loads(old_row), orjson.loads(new_row)
    return [name for name in dict.fromkeys([*old, *new]) if _value(old, name) != _value(new, name)]


def _value(row: dict[str, Any], name: str) -> bytes:
    return orjson.dumps(row[name], option=orjson.OPT_SORT_KEYS) if name in row else b""
