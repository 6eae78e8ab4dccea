"""The trajectory record of NeMo Gym 0.7 (`nemo_gym.rollout_observability`), which its `eval health-check` reads."""

from typing import Any

from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion
from apps.gym.traces.items import TaskRow
from apps.gym.traces.responses import assemble_response

TRAJECTORY = "ng_trajectory"
_ROOT = "root"


def trajectory_of(events: list[TraceUnion], row: TaskRow, *, ended: float) -> dict[str, Any]:
    """Return the record of an attempt: one turn for each model call, with its token counts, and the tool calls.

    `ended` is the end in seconds since 1970.
    """
    began = ended - max((event.at + event.duration for event in events), default=0.0)
    place = f"{row.get('_ng_task_index', 0)}", f"{row.get('_ng_task_index', 0)}-{row.get('_ng_rollout_index', 0)}"
    named = next((row[key] for key in ("task_id", "problem_id", "instance_id") if row.get(key) is not None), place[0])
    identity = {"task_id": str(named), "rollout_id": str(row.get("_ng_rollout_id") or place[1])}
    calls = [event for event in events if isinstance(event, ModelCall)]
    references = [[{"model_call_id": f"call_{number}"}] for number, _ in enumerate(calls, start=1)]
    return {
        "schema_version": "1.0",
        **identity,
        "invocations": [
            {
                "invocation_id": _ROOT,
                "status": "completed",
                "model_calls": [reference for (reference,) in references],
                "conversation": assemble_response(events, row)["output"],
            }
        ],
        "turns": [
            {
                "invocation_id": _ROOT,
                **identity,
                "turn_no": number,
                "timestamp": began + call.at,
                "answer": call.items,
                "step_count": number,
                "model_calls": reference,
            }
            for number, (call, reference) in enumerate(zip(calls, references, strict=True), start=1)
        ],
        "model_calls": [
            {**reference, **_describe_call(call, began)} for call, (reference,) in zip(calls, references, strict=True)
        ],
        "tool_calls": [
            {
                "invocation_id": _ROOT,
                "tool_call_id": event.call_id,
                "tool_name": event.name,
                "status": "failed" if event.error else "completed",
                "output": event.output,
            }
            for event in events
            if isinstance(event, ToolResult)
        ],
        "gaps": [],
    }


def _describe_call(call: ModelCall, began: float) -> dict[str, Any]:
    tokens = {
        "prompt_tokens": call.usage.get("input_tokens"),
        "completion_tokens": call.usage.get("output_tokens"),
        "reasoning_tokens": call.usage.get("reasoning_tokens"),
        "cached_tokens": call.usage.get("cached_tokens"),
    }
    return {
        "started_at": began + call.at,
        "completed_at": began + call.at + call.duration,
        "duration_ms": 1_000 * call.duration,
        "response": {"output": call.items},
        "response_metadata": {
            "response_id": call.response_id or None,
            "model": call.model or None,
            "status_code": 200,
            "finish_reason": call.finish_reason or None,
        },
        "token_stats": tokens,
    }
