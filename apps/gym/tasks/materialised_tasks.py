"""Tasks as NeMo Gym 0.7.0 materialises them: `{task_id: {taskset, task_id}, task_input: {…, task_data: {…}}}`.

`task_input` holds the fields of a flat row. Tasks of typed environment servers hold those for the verifier in
`task_data`, which resource servers receive in place of the flat row (`nemo_gym.episode_types`,
`nemo_gym.base_resources_server`).
"""

from typing import Any

from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.items import TaskRow

_THEIR_IDS = ("task_id", "problem_id", "instance_id")


def is_materialised(row: dict[str, Any]) -> bool:
    """Return True if the row has the envelope, valid or not: by the same keys as in NeMo Gym."""
    return "task_input" in row and isinstance(row.get("task_id"), dict)


def flat_task(row: dict[str, Any]) -> TaskRow:
    """Return the flat row, with `task_id` and `taskset` beside the task's own fields. Raises RowRefused.

    NeMo Gym numbers tasks that have no id. Such a number is a position, so it is kept as `_ng_task_id`, which is no id.
    """
    identity, given = row["task_id"], expect(row["task_input"], dict, "an object", "/task_input")
    inner = dict(given)
    if isinstance(data := given.get("task_data"), dict):
        del inner["task_data"]
        for key in sorted(inner.keys() & data.keys()):
            if inner[key] != data[key]:
                told = "must equal the value outside task_data, because both are the same field"
                raise RowRefused("conflict", told, pointer=f"/task_input/task_data/{key}")
        inner = {**data, **inner}
    beside = {key: value for key, value in row.items() if key not in ("task_id", "task_input")}
    name = str(identity.get("task_id"))
    if name.isdecimal() and not any(key in inner for key in _THEIR_IDS):
        return {**beside, "_ng_task_id": identity, **inner}
    return {**beside, "taskset": identity.get("taskset"), "task_id": identity.get("task_id"), **inner}
