"""Convert one line of a file of stored rollouts, in any supported format, for the import."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from apps.gym.rollout_files.rollout_rows import LineKind, line_kind, read_object
from apps.gym.rollout_files.shapes.stored_conversations import read_chat_log
from apps.gym.rollout_files.shapes.verifiers_results import is_episode, is_metadata, read_episode, read_result
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import own_task
from apps.gym.traces.items import TaskRow

RolloutFormat = Literal["auto", "nemo_gym", "verifiers", "openai_chat"]
FORMATS: dict[RolloutFormat, str] = {
    "auto": "Detect automatically",
    "nemo_gym": "NeMo Gym: rollouts, failures, tasks, materialised inputs",
    "verifiers": "verifiers: results.jsonl with metadata.json, or traces.jsonl",
    "openai_chat": "OpenAI chat logs: messages, tools, reward",
}

_Reader = Callable[[dict[str, Any]], tuple[dict[str, Any], TaskRow]]


_READERS: dict[str, _Reader] = {
    "verifiers": lambda row: read_episode(row) if is_episode(row) else read_result(row),
    "openai_chat": read_chat_log,
}


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A converted line.

    `row` is a NeMo Gym row, unchanged if `is_original`; for metadata it is empty, and only `model` is set.

    For a rollout, `task` is its task as far as the row describes it. `group` identifies rows of one file with the same
    task if they have neither an index nor a task row.
    """

    kind: LineKind | Literal["metadata"]
    row: dict[str, Any]
    task: TaskRow
    group: object = None
    model: str = ""
    is_original: bool = False


def read_line(line: bytes, wanted: RolloutFormat = "auto") -> StoredLine:
    """Convert a line. Raises RowRefused."""
    given = read_object(line)
    found = _format_of(given) if wanted == "auto" else wanted
    if found == "verifiers" and is_metadata(given):
        return StoredLine("metadata", {}, {}, model=str(given.get("model") or ""))
    if found == "nemo_gym":
        kind = line_kind(given)
        return StoredLine(kind, given, given if kind == "task" else own_task(given), is_original=True)
    row, task = _READERS[found](given)
    return StoredLine(line_kind(row), row, task, group=_group(found, task))


def _format_of(row: dict[str, Any]) -> RolloutFormat:
    if PARAMS in row or "response" in row:
        return "nemo_gym"
    if "completion" in row or is_episode(row) or is_metadata(row):
        return "verifiers"
    if "messages" in row:
        return "openai_chat"
    if "reward" in row or not row:
        return "nemo_gym"
    text = (
        "this is not a stored rollout. Give responses_create_params and response (NeMo Gym), prompt and completion "
        "or traces (verifiers), or messages (OpenAI chat logs)"
    )
    raise RowRefused("unknown_shape", text)


def _group(found: str, task: TaskRow) -> object:
    """Return the key of the task: prompt and tools, and for `verifiers` also the example's number."""
    params = task[PARAMS]
    number = [task.get("id"), task.get("task")] if found == "verifiers" else []
    return [params["input"], params.get("tools"), *number]
