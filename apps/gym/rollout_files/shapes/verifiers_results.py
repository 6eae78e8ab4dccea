"""Results of the `verifiers` library: a line of its results.jsonl, or a row of a data set that was saved from them."""

from typing import Any, TypeGuard

import orjson

from apps.gym.loop.agent_loop import StopReason
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import MAX_REWARD, REWARD_BOUNDS
from apps.gym.rollout_files.rollout_rows import FAILURE_CLASS
from apps.gym.rollout_files.shapes.chat_logs import read_usage
from apps.gym.rollout_files.shapes.stored_conversations import prompt_items, read_messages, read_tools, spoken_items
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import TaskRow

_NAMES = (
    "example_id id prompt completion answer task info reward metrics error error_chain long_error_chain timing "
    "generation_ms scoring_ms total_ms is_completed is_truncated stop_condition tool_defs token_usage model "
    "trajectory advantage"
)
_KNOWN = frozenset(_NAMES.split())
_STOPS: dict[str, StopReason] = {
    "max_turns_reached": "max_steps",
    "prompt_too_long": "context_length",
    "max_total_completion_tokens_reached": "token_limit",
    "timeout_reached": "time_limit",
    "has_final_env_response": "environment_done",
}


def is_metadata(row: dict[str, Any]) -> bool:
    """Whether this is the metadata.json that stands beside the results: it names the model."""
    return "env_id" in row and "rollouts_per_example" in row and "completion" not in row


def read_result(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """The result as a NeMo Gym rollout row, and its task. One that ended with an error is a failure, without the reward
    of 0 that stands there. Raises RowRefused."""
    error = row.get("error")
    prompt = read_messages(row.get("prompt"), "/prompt", text_role="user")
    if not prompt:
        raise RowRefused("empty", "is empty: what the model was asked, as messages or text", pointer="/prompt")
    if row.get("completion") is None and not error:
        text = "is missing: what the model said, as messages or text"
        raise RowRefused("missing", text, pointer="/completion")
    completion = read_messages(row.get("completion") or [], "/completion", text_role="assistant")
    task = _task(row, prompt)
    gym_row = {
        **task,
        **{key: row[key] for key in ("is_truncated", "stop_condition") if row.get(key)},
        **_own_columns(row),
        "response": {
            "model": str(row.get("model") or ""),
            "output": spoken_items(completion, len(prompt)),
            "usage": read_usage(row.get("token_usage")),
        },
    }
    if error:
        return {**gym_row, FAILURE_CLASS: class_of(error), "_ng_failure_message": _words_of(error)}, task
    stop = _STOPS.get(str(row.get("stop_condition") or ""))
    if stop is None and row.get("is_truncated") is True:
        stop = "max_output_tokens"
    if stop:
        gym_row["gymweb"] = {"stop_reason": stop}
    return {**gym_row, "reward": row.get("reward"), "reward_components": _metrics(row)}, task


def _task(row: dict[str, Any], prompt: list[dict[str, Any]]) -> TaskRow:
    info = _info(row)
    params: dict[str, Any] = {"input": prompt_items(prompt)}
    offered = row.get("tool_defs") or (info.get("oai_tools") if isinstance(info, dict) else None)
    if tools := read_tools(offered, "/tool_defs"):
        params["tools"] = tools
    task: TaskRow = {PARAMS: params}
    example = row.get("example_id", row.get("id"))
    if isinstance(example, int | str) and not isinstance(example, bool):
        task["id"] = example
    if row.get("answer") not in (None, ""):
        task["expected_answer"] = row["answer"]
    if row.get("task") not in (None, ""):
        task["task"] = row["task"]
    if info:
        task["info"] = {k: v for k, v in info.items() if k != "oai_tools"} if isinstance(info, dict) else info
    return task


def _info(row: dict[str, Any]) -> Any:
    """`info` is an object, which some data sets keep as text."""
    info = row.get("info")
    if not isinstance(info, str):
        return info
    try:
        return orjson.loads(info or "{}")
    except orjson.JSONDecodeError:
        return {"text": info}


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    """What the rubric's functions gave. Older data sets have each in a column of its own."""
    given = row.get("metrics")
    if given is not None and not isinstance(given, dict):
        raise RowRefused("wrong_type", "must be an object of numbers", pointer="/metrics")
    columns = {key: value for key, value in row.items() if key not in _KNOWN} if given is None else given
    components = {key: value for key, value in columns.items() if is_number(value)}
    for key, value in components.items():
        if not abs(value) <= MAX_REWARD:
            raise RowRefused("reward", f"must be {REWARD_BOUNDS}", pointer=f"/metrics/{cut(key, 60)}")
    return components


def _own_columns(row: dict[str, Any]) -> dict[str, Any]:
    """What somebody had saved besides; each metric stands there once more, in a column of its own."""
    metrics = row.get("metrics") or {}
    return {
        key: value
        for key, value in row.items()
        if key not in _KNOWN and key not in metrics and not (row.get("metrics") is None and is_number(value))
    }


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CLASSES = {"ModelError": "model_error", "InvalidModelResponseError": "model_error", "ProviderError": "model_error"}


def class_of(error: object) -> str:
    """The class of the error, from its record or its `repr`."""
    name = error.get("error") if isinstance(error, dict) else str(error).partition("(")[0]
    return _CLASSES.get(str(name), cut(str(name), 100) or "error")


def _words_of(error: object) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or error.get("error_chain_str") or error.get("error") or "")
