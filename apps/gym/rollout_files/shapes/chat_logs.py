"""Chat logs in OpenAI's format: `{"messages": […], "tools": […]}`, where wanted with a reward and metadata."""

from typing import Any

from apps.gym.rollout_files.shapes.stored_conversations import (
    Message,
    prompt_items,
    read_messages,
    read_tools,
    spoken_items,
)
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import TaskRow, TokenUsage

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "tool_choice": "tool_choice",
}
_OF_THE_CALL = {
    "messages", "tools", "functions", "model", "usage", "finish_reason", "reward", "reward_components", *_SAMPLING,
}  # fmt: skip
FINISHED = {"length": "max_output_tokens", "content_filter": "content_filter"}


def read_chat_log(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """The log as a NeMo Gym rollout row, and its task: what stands before the model's first turn is the prompt.

    A reply that is not to be learned from (`weight` 0, as in fine-tuning files) and stands before all others belongs to
    the prompt. Without a reward the judgement is left to people. Raises RowRefused.
    """
    messages = read_messages(row.get("messages"), "/messages", text_role="user")
    first = _first_turn(messages)
    model, metadata = row.get("model"), row.get("metadata")
    if not model and isinstance(metadata, dict):
        model = metadata.get("model")
    params = {"input": prompt_items(messages[:first])}
    if tools := read_tools(row.get("tools") or _old_tools(row), "/tools"):
        params["tools"] = tools
    task = {PARAMS: params, **{key: value for key, value in row.items() if key not in _OF_THE_CALL}}
    cut = FINISHED.get(str(row.get("finish_reason") or ""))
    gym_row = {
        **task,
        PARAMS: {**params, **_sampling(row)},
        "response": {
            "model": str(model or ""),
            "output": spoken_items(messages[first:], first),
            "usage": read_usage(row.get("usage")),
            **({"incomplete_details": {"reason": cut}} if cut else {}),
        },
        **{key: row[key] for key in ("reward", "reward_components") if row.get(key) is not None},
        **({} if row.get("reward") is not None else {"verification_skipped": True}),
    }
    return gym_row, task


def read_usage(given: object) -> TokenUsage:
    """Token counts in chat's words or in those of Responses; none where there are none."""
    if not isinstance(given, dict):
        return {}
    counts: TokenUsage = {}
    for name, names in (
        ("input_tokens", ("input_tokens", "prompt_tokens")),
        ("output_tokens", ("output_tokens", "completion_tokens")),
    ):
        value = next((given[one] for one in names if given.get(one) is not None), None)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31:
            counts[name] = int(value)  # type: ignore[literal-required]
    return counts


def _first_turn(messages: list[Message]) -> int:
    if not messages:
        raise RowRefused("empty", "is empty: a conversation has a question and an answer", pointer="/messages")
    turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        text = "holds no message of the assistant, so nothing was attempted: upload such rows as tasks"
        raise RowRefused("no_attempt", text, pointer="/messages")
    if turns[0] == 0:
        text = "begins with the assistant: put what it was asked before it"
        raise RowRefused("no_prompt", text, pointer="/messages")
    return next((place for place in turns if messages[place].get("weight") != 0), turns[0])


def _old_tools(row: dict[str, Any]) -> object:
    functions = row.get("functions")
    return [{"type": "function", "function": one} for one in functions] if isinstance(functions, list) else functions


def _sampling(row: dict[str, Any]) -> dict[str, Any]:
    return {ours: row[theirs] for theirs, ours in _SAMPLING.items() if row.get(theirs) is not None}
