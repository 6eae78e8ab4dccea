"""Change marks of tasks, which are stored next to their rows: split, tags and retired."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.redaction.shortening import cut
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line
from apps.gym.tasks.task_rows import MARK_CHARS, MAX_TAGS
from apps.tasks.models import DatasetVersion, Task, join_tags
from apps.tasks.upload_turns import check_nothing_follows

MAX_TASKS = 1000


class MarkRefused(Refusal):
    """Raised for an invalid mark. `argument` is the offending value."""


def mark_tasks(
    *,
    task_ids: Collection[int],
    split: str | None = None,
    add_tags: Iterable[str] = (),
    remove_tags: Iterable[str] = (),
    retired: bool | None = None,
    user: User | None = None,
) -> int:
    """Change marks of tasks in ready versions. None or empty leaves a mark unchanged. Return the number of tasks.

    Raise MarkRefused, or DatasetIsBusy while a file is being loaded, because loading copies the marks.
    """
    if len(task_ids) > MAX_TASKS:
        raise MarkRefused(f"At most {MAX_TASKS:,} tasks at a time.", "tasks")
    split = None if split is None else clean_line(split.strip(), MARK_CHARS)
    added, removed = _clean(add_tags), set(_clean(remove_tags))
    with transaction.atomic():
        named = Task.objects.ready().filter(pk__in=task_ids)
        # Lock versions in a fixed order before reading tasks, to serialize concurrent changes.
        locked = DatasetVersion.objects.filter(pk__in=named.values("version")).order_by("pk")
        counters = {version.pk: (version, Counter[str](), Counter[str]()) for version in locked.select_for_update()}
        tasks = list(named.filter(version__in=counters).defer("row_json").order_by("pk"))
        for version, _, _ in counters.values():
            check_nothing_follows(version)
        for task in tasks:
            _, splits, tags = counters[task.version_id]
            splits[task.split] -= 1
            tags.subtract(task.tags)
            task.split = task.split if split is None else split
            kept = dict.fromkeys(tag for tag in [*task.tags, *added] if tag not in removed)
            if len(kept) > MAX_TAGS and added:
                raise MarkRefused(
                    f"Task {task.number:,} would have {len(kept)} tags. The maximum is {MAX_TAGS}.", "add_tags"
                )
            task.tags_text = join_tags(kept)
            task.is_retired = task.is_retired if retired is None else retired
            splits[task.split] += 1
            tags.update(task.tags)
        Task.objects.bulk_update(tasks, ["split", "tags_text", "is_retired"], batch_size=100)
        for version, splits, tags in counters.values():
            _recount(version, splits, tags)
        if tasks:
            detail: dict[str, Any] = {"split": split, "add_tags": added, "remove_tags": sorted(removed)}
            detail |= {"retired": retired, "tasks": [task.pk for task in tasks]}
            record(user=user, action="task.mark", target=f"{len(tasks)} tasks", **detail)
    return len(tasks)


def _clean(tags: Iterable[str]) -> list[str]:
    cleaned = [clean_line(tag.strip(), MARK_CHARS + 1).strip() for tag in tags]
    if long := next((tag for tag in cleaned if len(tag) > MARK_CHARS), ""):
        raise MarkRefused(f"A tag has at most {MARK_CHARS} characters: “{cut(long, 40)}…” is longer.", "add_tags")
    return list(dict.fromkeys(tag for tag in cleaned if tag))


def _recount(version: DatasetVersion, splits: Counter[str], tags: Counter[str]) -> None:
    """Update the counts of splits and tags in the version's metrics."""
    if version.metrics is None:
        return
    for name, changes in (("splits", splits), ("tags", tags)):
        counts = Counter[str](version.metrics.get(name, {}))
        counts.update(changes)
        version.metrics[name] = {mark: count for mark, count in counts.most_common() if mark and count > 0}
    version.save(update_fields=["metrics"])
