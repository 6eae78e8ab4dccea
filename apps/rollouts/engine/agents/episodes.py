"""Episodes of NeMo Gym 0.7's environment servers: the request of `/run`, and its typed result or failure."""

from typing import Any

from apps.gym.errors import AgentFailed
from apps.gym.outcomes import ErrorKind, read_nemo_gym_failure
from apps.gym.redaction.shortening import cut
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import is_of_attempt
from apps.gym.tasks.task_rows import external_id
from apps.gym.traces.items import TaskRow

MAX_REASON = 2000
_TASKSET = "gymweb"
"""Taskset of tasks that name none."""


class EpisodeFailed(AgentFailed):
    """Raised for a failure that an environment server reports, with its error kind in GymWeb."""

    def __init__(self, message: str, error_kind: ErrorKind) -> None:
        super().__init__(message)
        self.error_kind: ErrorKind = error_kind


def task_identity(row: TaskRow) -> dict[str, str]:
    """Return the task's taskset and id. The server repeats them in its reply."""
    if isinstance(given := row.get("_ng_task_id"), dict):
        return {name: str(given.get(name)) for name in ("taskset", "task_id")}
    name = str(row["task_id"]) if row.get("taskset") and "task_id" in row else external_id(row)
    return {"taskset": str(row.get("taskset") or _TASKSET), "task_id": name or "0"}


def episode_request(row: TaskRow, params: dict[str, Any], rollout: str) -> dict[str, Any]:
    """Return the request for one episode. The task's fields are beside its prompt, as NeMo Gym materialises them."""
    fields = {key: value for key, value in row.items() if not is_of_attempt(key) and key not in ("taskset", PARAMS)}
    task = {"task_id": task_identity(row), "task_input": {**fields, PARAMS: params}}
    return {"episode_id": {"rollout_id": rollout, "attempt": 0}, "task": task}


def read_episode(reply: dict[str, Any], row: TaskRow) -> dict[str, Any]:
    """Return the result of an episode, in the form of a verify reply.

    Raises EpisodeFailed for a reported failure, and AgentFailed for the reply of another episode or none.
    """
    if reply.get("task_id") != task_identity(row):
        told = f"{cut(str(reply.get('task_id')), 200)} instead of {task_identity(row)}"
        raise AgentFailed(f"The environment server's reply is no episode of this task: its task_id is {told}.")
    if isinstance(failure := reply.get("failure"), dict):
        kind, stage = (str(failure.get(name) or "") for name in ("failure_kind", "stage"))
        where = ", ".join(filter(None, [kind, f"stage {stage}" if stage else ""])) or "without kind and stage"
        told = cut(str(failure.get("failure_reason") or "no reason given"), MAX_REASON)
        raise EpisodeFailed(f"The environment server failed ({where}): {told}", read_nemo_gym_failure(kind, stage))
    if not isinstance(result := reply.get("result"), dict):
        raise AgentFailed("The environment server's reply has neither a result nor a failure.")
    return result
