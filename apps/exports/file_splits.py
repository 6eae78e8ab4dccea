"""Which file a row goes into. By what its task shows the model: the same question must not stand on both sides."""

import hashlib

from apps.gym.traces.fingerprints import question_fingerprint
from apps.tasks.models import Task

TRAIN = "train"
VALIDATION = "validation"
MAX_SHARE = 0.5


def split_of(task: Task, *, share: float, seed: int) -> str:
    """`train`, or `validation` for about `share` of the questions.

    The side depends on the prompt alone: the same one stays on its side under another id, at another place, in every
    version and every dataset, and so in every export with the same seed and share.
    """
    if share <= 0.0:
        return TRAIN
    digest = hashlib.sha256(f"{seed}:{question_fingerprint(task.row)}".encode()).digest()
    return VALIDATION if int.from_bytes(digest[:8]) / 2**64 < share else TRAIN
