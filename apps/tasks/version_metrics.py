"""Versions that were made without hashes of their rows and without metrics get both, once."""

import orjson
from django.db import transaction

from apps.gym import process_exit
from apps.gym.tasks.dataset_metrics import DatasetMetrics
from apps.tasks.models import DatasetVersion, Task
from apps.tasks.row_matching import hash_text, key_of

CHUNK_ROWS = 500


def measure_version(*, version: DatasetVersion) -> DatasetVersion:
    """Fill in what its tasks lack and store what they are made of."""
    metrics = DatasetMetrics()
    last = -1
    while chunk := list(version.tasks.filter(index__gt=last).order_by("index")[:CHUNK_ROWS]):
        for task in chunk:
            text = task.row_json.encode()
            task.row_hash = hash_text(text)
            task.key = key_of(task.external_id, task.row_hash)
            metrics.add(orjson.loads(text), size=len(text), split=task.split, tags=tuple(task.tags))
        with transaction.atomic():
            Task.objects.bulk_update(chunk, ["row_hash", "key"], batch_size=100)
        last = chunk[-1].index
        process_exit.check()
    version.metrics = metrics.figures()
    DatasetVersion.objects.filter(pk=version.pk).update(metrics=version.metrics)
    return version


def measure_next_version() -> bool:
    """Background job: measure one version that lacks it; says whether there was one."""
    version = DatasetVersion.objects.filter(state=DatasetVersion.State.READY, metrics__isnull=True).first()
    if version is None:
        return False
    measure_version(version=version)
    return True
