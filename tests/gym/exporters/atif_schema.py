"""The rules of ATIF 1.7, written from its specification."""

from typing import Any

ROOT = {
    "schema_version",
    "session_id",
    "trajectory_id",
    "agent",
    "steps",
    "notes",
    "final_metrics",
    "continued_trajectory_ref",
    "subagent_trajectories",
    "extra",
}
STEP = {
    "step_id",
    "timestamp",
    "source",
    "model_name",
    "reasoning_effort",
    "message",
    "reasoning_content",
    "tool_calls",
    "observation",
    "metrics",
    "extra",
    "llm_call_count",
    "is_copied_context",
}
OF_AGENTS = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
METRICS = {
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_usd",
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
    "extra",
}
TOTALS = {
    "total_prompt_tokens",
    "total_completion_tokens",
    "total_cached_tokens",
    "total_cost_usd",
    "total_steps",
    "extra",
}


def check_trajectory(row: dict[str, Any], _options: object = None) -> None:
    assert set(row) <= ROOT
    assert row["schema_version"] == "ATIF-v1.7"
    assert set(row["agent"]) <= {"name", "version", "model_name", "tool_definitions", "extra"}
    assert row["agent"]["name"]
    assert row["agent"]["version"]
    assert set(row["final_metrics"]) <= TOTALS
    assert [step["step_id"] for step in row["steps"]] == list(range(1, len(row["steps"]) + 1))
    for step in row["steps"]:
        check_step(step)
    ids = [one["trajectory_id"] for one in row.get("subagent_trajectories", ())]
    assert len(ids) == len(set(ids))
    for one in row.get("subagent_trajectories", ()):
        check_trajectory(one)


def check_step(step: dict[str, Any]) -> None:
    assert set(step) <= STEP
    assert step["source"] in ("system", "user", "agent")
    assert step["source"] == "agent" or not OF_AGENTS & set(step)
    check_content(step["message"])
    assert set(step.get("metrics", ())) <= METRICS
    ids = set()
    for call in step.get("tool_calls", ()):
        assert set(call) <= {"tool_call_id", "function_name", "arguments", "extra"}
        assert isinstance(call["arguments"], dict)
        ids.add(call["tool_call_id"])
    for result in step.get("observation", {}).get("results", ()):
        assert set(result) <= {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
        assert result.get("source_call_id") is None or result["source_call_id"] in ids
        check_content(result.get("content", ""))


def check_content(content: Any) -> None:
    for part in [] if isinstance(content, str) else content:
        assert part["type"] in ("text", "image")
        assert ("text" in part) == (part["type"] == "text")
        assert part["type"] == "text" or set(part["source"]) == {"media_type", "path"}
