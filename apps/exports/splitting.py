"""Which file a task goes into. By task, never by rollout: two attempts at one task must not stand on both sides."""

import hashlib

from apps.tasks.models import Task

TRAIN = "train"
VALIDATION = "validation"
MAX_SHARE = 0.5


def split_of(task: Task, *, dataset: str, share: float, seed: int) -> str:
    """`train`, or `validation` for about `share` of the tasks.

    A task stays on its side in every export of every collection of its dataset with the same seed and share, since the
    side depends on its own id alone (its place, where it has none).
    """
    if share <= 0.0:
        return TRAIN
    digest = hashlib.sha256(f"{seed}:{dataset}:{task.external_id or task.index}".encode()).digest()
    return VALIDATION if int.from_bytes(digest[:8]) / 2**64 < share else TRAIN
