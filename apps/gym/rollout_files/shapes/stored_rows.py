"""Convert one line of a file of stored rollouts, in any supported format, for the import."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from apps.gym.rollout_files.rollout_rows import (
    FAILURE_CLASS,
    LineKind,
    StoredAttempt,
    join_steps,
    line_kind,
    read_attempt,
    read_object,
)
from apps.gym.rollout_files.shapes.atif_trajectories import is_atif, read_trajectory
from apps.gym.rollout_files.shapes.claude_code_sessions import read_claude_code
from apps.gym.rollout_files.shapes.codex_sessions import read_codex
from apps.gym.rollout_files.shapes.genai_spans import read_otlp
from apps.gym.rollout_files.shapes.session_lines import SESSION, SESSION_FORMATS, session_lines
from apps.gym.rollout_files.shapes.stored_conversations import read_chat_log
from apps.gym.rollout_files.shapes.verifiers_results import is_episode, is_metadata, read_episode, read_result
from apps.gym.rollout_files.stored_calls import StoredTrace
from apps.gym.rollout_files.task_agreement import TASK_ID
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import OURS, own_task
from apps.gym.traces.items import TaskRow

RolloutFormat = Literal["auto", "nemo_gym", "verifiers", "openai_chat", "atif", "claude_code", "codex", "otlp"]
FORMATS: dict[RolloutFormat, str] = {
    "auto": "Detect automatically",
    "nemo_gym": "NeMo Gym: rollouts, failures, tasks, materialised inputs",
    "verifiers": "verifiers: results.jsonl with metadata.json, or traces.jsonl",
    "openai_chat": "OpenAI chat logs: messages, tools, reward",
    "atif": "ATIF trajectories 1.4 to 1.8: one file each, or one per line",
    "claude_code": "Claude Code: session files (.jsonl)",
    "codex": "Codex: session files (rollout-….jsonl)",
    "otlp": "OpenTelemetry spans of model calls: one OTLP/JSON trace per line",
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
    trace: StoredTrace | None = None
    """The calls of a trajectory or session, which may have branches."""
    is_chat: bool = False

    @property
    def told(self) -> dict[str, Any]:
        """What the row says about its task, to compare with task rows; with the identity that NeMo Gym adds.

        In a chat log, id and metadata may belong to the conversation instead of the task.
        """
        if TASK_ID in self.row:
            return {**self.task, TASK_ID: self.row[TASK_ID]}
        return {key: value for key, value in self.task.items() if not self.is_chat or key not in ("id", "metadata")}

    def completed(self, task: TaskRow) -> "StoredLine":
        """Return a failure that NeMo Gym stored without its task, with `task`; any other line unchanged."""
        if self.kind != "failure" or PARAMS in self.row:
            return self
        return replace(self, row={**task, **self.row}, task=task)

    def attempt(self, task: TaskRow, *, environment: str, numbered: bool = False) -> StoredAttempt:
        """Return the attempt at `task`. Raises RowRefused."""
        return read_attempt(
            self.completed(task).row,
            task,
            environment=environment,
            is_original=self.is_original,
            numbered=numbered,
            trace=self.trace,
        )


def read_line(line: bytes, wanted: RolloutFormat = "auto") -> StoredLine:
    """Convert a line. Raises RowRefused."""
    given = read_object(line)
    found = _format_of(given) if wanted == "auto" else wanted
    if found == "verifiers" and is_metadata(given):
        return StoredLine("metadata", {}, {}, model=str(given.get("model") or ""))
    if found == "nemo_gym":
        kind, given = line_kind(given), join_steps(given)
        return StoredLine(kind, given, given if kind == "task" else own_task(given), is_original=True)
    if found in _TRACE_READERS:
        return _trace_line(found, _TRACE_READERS[found](given))
    row, task = _READERS[found](given)
    return StoredLine(line_kind(row), row, task, group=_group(found, task), is_chat=found == "openai_chat")


def _session(row: dict[str, Any]) -> StoredTrace:
    if row.get(SESSION) not in SESSION_FORMATS:
        raise RowRefused("not_a_session", "the file is no session of this format")
    lines = session_lines(row)
    return read_codex(lines) if row[SESSION] == "codex" else read_claude_code(lines)


_TRACE_READERS: dict[str, Callable[[dict[str, Any]], StoredTrace]] = {
    "atif": read_trajectory,
    "claude_code": _session,
    "codex": _session,
    "otlp": read_otlp,
}


def _trace_line(found: str, trace: StoredTrace) -> StoredLine:
    params: dict[str, Any] = {"input": trace.prompt, **({"tools": trace.tools} if trace.tools else {})}
    task: TaskRow = {PARAMS: params, **({"id": trace.task_id} if trace.task_id else {})}
    left_out = {"left_out": dict(trace.left_out)} if trace.left_out else {}
    row = {
        **task,
        "session": {**trace.session, **left_out},
        "response": {"model": trace.model, "output": []},
        **({"verification_skipped": True} if trace.reward is None else {"reward": trace.reward}),
        **({"reward_components": trace.components} if trace.components is not None else {}),
        **({OURS: {"stop_reason": trace.stop_reason}} if trace.stop_reason else {}),
    }
    return StoredLine("rollout", row, task, group=_group(found, task), trace=trace)


def _format_of(row: dict[str, Any]) -> RolloutFormat:
    if SESSION in row:
        return "codex" if row[SESSION] == "codex" else "claude_code"
    if "resourceSpans" in row or is_atif(row):
        return "otlp" if "resourceSpans" in row else "atif"
    if PARAMS in row or "response" in row or FAILURE_CLASS in row:
        return "nemo_gym"
    if "completion" in row or is_episode(row) or is_metadata(row):
        return "verifiers"
    if "messages" in row:
        return "openai_chat"
    if "reward" in row or not row:
        return "nemo_gym"
    text = (
        "this is not a stored rollout. Give responses_create_params and response (NeMo Gym), prompt and completion "
        "or traces (verifiers), messages (OpenAI chat logs), schema_version and steps (ATIF), "
        "resourceSpans (OTLP), or a session file"
    )
    raise RowRefused("unknown_shape", text)


def _group(found: str, task: TaskRow) -> object:
    """Return the key of the task: prompt, tools and answer, and unless it is a chat log, its id and name.

    The `id` of a chat log may be that of the conversation.
    """
    params = task[PARAMS]
    number = [] if found == "openai_chat" else [task.get("id"), task.get("task")]
    return [params["input"], params.get("tools"), task.get("expected_answer"), *number]
