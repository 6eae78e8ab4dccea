"""Compare a stored rollout with a task row, by identity and content. A position in a file is no evidence."""

import json
from collections.abc import Mapping
from typing import Any

from apps.gym.rollout_files.rollout_rows import plain_task
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import is_of_attempt
from apps.gym.traces.items import TaskRow

TASK_ID = "_ng_task_id"
"""Identity of the task in rollouts of NeMo Gym's environment servers: `{taskset, task_id}`."""
_IDS = ("id", "uuid", "task_id")
_MARKS = frozenset({PARAMS, "split", "tags"})

_NEVER_VERIFIED = frozenset(
    [*_IDS, "expected_answer", "reference_answer", "ground_truth", "verifier_metadata", "verifier", "rubric", "seed"]
)


def identity_of(row: Mapping[str, Any]) -> str:
    """Return the identity in a row of a task or a rollout, or an empty text. A number in a file is none."""
    if in_taskset := _in_taskset(row):
        return in_taskset
    name = next((name for name in _IDS if row.get(name) not in (None, "")), "")
    return f"{name}:{row[name]}" if name else ""


def _in_taskset(row: Mapping[str, Any]) -> str:
    named = row.get(TASK_ID)
    pair = named if isinstance(named, dict) else row if "taskset" in row else {}
    return f"{pair['taskset']}/{pair['task_id']}" if pair.get("taskset") and "task_id" in pair else ""


def content_of(task: TaskRow) -> bytes:
    """Return the task's fields in a normal form, without its position, split and tags."""
    fields = {key: value for key, value in plain_task(task).items() if key not in ("split", "tags")}
    return json.dumps(fields, sort_keys=True).encode()


def find_difference(task: TaskRow, told: Mapping[str, Any], *, is_restored: bool = False) -> str:
    """Return the first field in which `told`, what a rollout's row says about its task, contradicts the task.

    Return an empty text if there is none. A field that only one of both has is no contradiction. A task that
    `is_restored` from another rollout may have fields of its verifier, so only fields that no verifier writes count.
    """
    if (one := _in_taskset(told)) and (other := _in_taskset(task)) and one != other:
        return TASK_ID
    for key, value in told.items():
        if key in _MARKS or key not in task or is_of_attempt(key) or (is_restored and key not in _NEVER_VERIFIED):
            continue
        same = str(value) == str(task[key]) if key in _IDS else value == task[key]
        if not same:
            return key
    return ""


def has_identity(task: TaskRow, told: Mapping[str, Any]) -> bool:
    return bool(identity_of(told)) and identity_of(told) == identity_of(task)


def has_evidence(task: TaskRow, told: Mapping[str, Any]) -> bool:
    """Return True if identity or another non-empty field of the rollout is that of the task."""
    agreed = (value and key in task and value == task[key] for key, value in told.items() if key not in _MARKS)
    return has_identity(task, told) or any(agreed)


def adds_observation(asked: tuple[str, ...], texts: tuple[str, ...]) -> bool:
    """Return True if `texts` is the prompt `asked` and one message in which an environment shows its first state."""
    is_longer = len(texts) == len(asked) + 1 and texts[: len(asked)] == asked
    return is_longer and bool(asked) and asked[-1].startswith("user:") and texts[-1].startswith("user:")
