"""The Responses object of a whole attempt: what `/verify` scores and what rollout rows carry."""

from typing import Any

from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, TraceUnion
from apps.gym.traces.items import Item, TaskRow, TokenUsage
from apps.gym.traces.required_fields import complete_choice, complete_item, complete_tools

_INCOMPLETE = {"max_output_tokens": "max_output_tokens", "content_filter": "content_filter"}


def total_usage(events: list[TraceUnion]) -> TokenUsage:
    total: TokenUsage = {"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0, "cached_tokens": 0}
    for event in events:
        if isinstance(event, ModelCall):
            total["input_tokens"] += event.usage.get("input_tokens", 0)
            total["output_tokens"] += event.usage.get("output_tokens", 0)
            total["reasoning_tokens"] += event.usage.get("reasoning_tokens", 0)
            total["cached_tokens"] += event.usage.get("cached_tokens", 0)
    return total


def prompt_items(events: list[TraceUnion]) -> list[Item]:
    return next((event.items for event in events if isinstance(event, Prompt)), [])


def assemble_response(events: list[TraceUnion], row: TaskRow, *, stop_reason: str = "") -> dict[str, Any]:
    """One Responses object whose `output` is every item after the prompt, in order.

    The minimum keys are those that NeMo Gym's servers require: id, created_at, model, object, output,
    parallel_tool_calls, tool_choice, tools. Output items carry what the types of the `openai` package require; an
    environment's observations are user messages among them, which those types do not know.
    """
    params = row["responses_create_params"]
    calls = [event for event in events if isinstance(event, ModelCall)]
    last = calls[-1] if calls else None
    output = [item for event in events if not isinstance(event, Prompt) for item in event.new_items()]
    output = [complete_item(item, number) for number, item in enumerate(output)]
    tools = params.get("tools") or next((e.tools for e in events if isinstance(e, SessionOpened)), [])
    usage = total_usage(events)
    reason = _INCOMPLETE.get(stop_reason)
    return {
        "id": last.response_id if last and last.response_id else "resp_0",
        "created_at": 0.0,
        "model": last.model if last else "",
        "object": "response",
        "output": output,
        "parallel_tool_calls": bool(params.get("parallel_tool_calls", True)),
        "tool_choice": complete_choice(params.get("tool_choice")),
        "tools": complete_tools(tools),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": {
            "input_tokens": usage["input_tokens"],
            "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": usage["reasoning_tokens"]},
            "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        },
    }
