"""Dataset versions that grow: tasks of received traces are appended, and their rows never change."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings
from django.db.models import Max

from apps.accounts.audit_log import record
from apps.accounts.disk_space import check_growth
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.tasks.file_tasks import FileTasks
from apps.tasks.models import Dataset, DatasetVersion, Task, Upload, join_tags
from apps.tasks.rejected_rows import Rejects
from apps.tasks.stored_images import Images, refer_to_images, replace_images
from apps.tasks.unchanged_rows import measure_rows
from apps.tasks.upload_turns import DatasetIsBusy, check_nothing_follows
from apps.tasks.version_loading import ROW_BYTES


class TasksRefused(Exception):
    """Raised if rows cannot be tasks; nothing was appended. `problems` has the reason by place, from 0."""

    def __init__(self, problems: dict[int, str]) -> None:
        super().__init__(f"{len(problems)} rows cannot be tasks")
        self.problems = problems


def create_growing_version(dataset: Dataset, *, note: str, user: User | None) -> DatasetVersion:
    """Return a new version without tasks. The caller must hold the lock of the dataset. Raises DatasetIsBusy."""
    if dataset.versions.filter(state=DatasetVersion.State.LOADING).exists():
        raise DatasetIsBusy(f"A file is being loaded into {dataset.slug}.")
    last = dataset.versions.aggregate(last=Max("number"))["last"] or 0
    version = DatasetVersion.objects.create(
        dataset=dataset,
        number=max(last, dataset.last_number) + 1,
        state=DatasetVersion.State.READY,
        note=cut_clean(note, 200),
    )
    record(user=user, action="dataset_version.create", target=version, mode="traces")
    return version


def append_tasks(version: DatasetVersion, rows: Sequence[bytes]) -> list[Task]:
    """Return a task for each row: the one with an equal row, or a new one at the end.

    Call it in a transaction. Raises TasksRefused, DatasetIsBusy and DiskFull.
    """
    DatasetVersion.objects.select_for_update().get(pk=version.pk)
    check_nothing_follows(version)
    with TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as folder, Rejects(Path(folder) / "rows") as rejects:
        read = list(
            FileTasks(
                upload=Upload(dataset=version.dataset, filename="traces.jsonl"),
                stream=io.BytesIO(b"\n".join(rows) + b"\n"),
                rejects=rejects,
                counts=Counter(),
                on_read=process_exit.check,
            )
        )
    if rejects.count:
        raise TasksRefused({int(str(one["line"])) - 1: f"its task: {one['message']}" for one in rejects.first})
    given = [one for one in read if one is not None]
    known = {task.row_hash: task for task in version.tasks.filter(row_hash__in={one.row_hash for one in given})}
    images: Images = {}
    new: list[Task] = []
    for one in given:
        if one.row_hash in known:
            continue
        row_json, found = replace_images(one.task.row_json)
        images |= found
        task = Task(
            dataset_id=version.dataset_id,
            version=version,
            index=version.task_count + len(new),
            external_id=one.task.external_id,
            prompt_excerpt=one.task.prompt_excerpt,
            row_json=row_json,
            row_hash=one.row_hash,
            key=one.key,
            split=one.task.split,
            tags_text=join_tags(one.task.tags),
        )
        new.append(task)
        known[one.row_hash] = task
    if new:
        check_growth(sum(len(task.row_json) + ROW_BYTES for task in new))
        if images:
            refer_to_images(version, images)
        Task.objects.bulk_create(new)
        version.task_count += len(new)
        version.content_hash, metrics = measure_rows(version=version, after_chunk=process_exit.check)
        version.metrics = metrics.figures()
        version.save(update_fields=["task_count", "content_hash", "metrics"])
    return [known[one.row_hash] for one in given]
