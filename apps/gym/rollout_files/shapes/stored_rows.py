"""One line of a file of stored rollouts, whatever its shape, as what the import goes on with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from apps.gym.rollout_files.rollout_rows import LineKind, line_kind, read_object
from apps.gym.rollout_files.shapes.chat_logs import read_chat_log
from apps.gym.rollout_files.shapes.verifiers_episodes import is_episode, read_episode
from apps.gym.rollout_files.shapes.verifiers_results import is_metadata, read_result
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import own_task
from apps.gym.traces.items import TaskRow

RolloutFormat = Literal["auto", "nemo_gym", "verifiers", "openai_chat"]
FORMATS: dict[RolloutFormat, str] = {
    "auto": "told by each line's keys",
    "nemo_gym": "NeMo Gym: rollouts, failures, tasks, materialised inputs",
    "verifiers": "verifiers: results.jsonl with metadata.json, or traces.jsonl",
    "openai_chat": "OpenAI chat logs: messages, tools, reward",
}

_Reader = Callable[[dict[str, Any]], tuple[dict[str, Any], TaskRow]]


def _read_verifiers(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    return read_episode(row) if is_episode(row) else read_result(row)


_READERS: dict[str, _Reader] = {"verifiers": _read_verifiers, "openai_chat": read_chat_log}


@dataclass(frozen=True, slots=True)
class StoredLine:
    """`row` is a row of NeMo Gym, and as it came where it is the `original`; of a rollout, `task` is what the row
    itself tells of its task, and `group` says which rows of one file attempt the same task where neither an index nor a
    task row does. Metadata has only a model."""

    kind: LineKind | Literal["metadata"]
    row: dict[str, Any]
    task: TaskRow
    group: object = None
    model: str = ""
    is_original: bool = False


def read_line(line: bytes, wanted: RolloutFormat = "auto") -> StoredLine:
    """Raises RowRefused."""
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
        "this is no stored rollout: give responses_create_params and response (NeMo Gym), prompt and completion "
        "or traces (verifiers), or messages (OpenAI chat logs)"
    )
    raise RowRefused("unknown_shape", text)


def _group(found: str, task: TaskRow) -> object:
    """Attempts at one task ask the same with the same tools; of verifiers' examples the number has to agree too."""
    params = task[PARAMS]
    number = [task.get("id"), task.get("task")] if found == "verifiers" else []
    return [params["input"], params.get("tools"), *number]
