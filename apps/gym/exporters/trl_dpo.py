"""Preference pairs as TRL conversational DPO rows: {"prompt", "chosen", "rejected", "tools"}, whole trajectories."""

from typing import Any

from apps.gym.events import TraceUnion
from apps.gym.items import TaskRow
from apps.gym.messages import Dropped, completion_messages, nested_tools, offered_tools, prompt_messages


def preference_row(
    chosen: list[TraceUnion],
    rejected: list[TraceUnion],
    row: TaskRow,
    *,
    chosen_reward: float,
    rejected_reward: float,
    columns: dict[str, Any],
) -> dict[str, Any]:
    """One row. Raises Dropped, also when the two did not start from the same prompt and tools.

    `columns` as for trl_sft.demonstration_row.
    """
    prompt, tools = prompt_messages(chosen), nested_tools(offered_tools(chosen, row))
    if prompt_messages(rejected) != prompt or nested_tools(offered_tools(rejected, row)) != tools:
        raise Dropped("different_prompts")
    good, bad = completion_messages(chosen), completion_messages(rejected)
    if good == bad:
        raise Dropped("identical_completions")
    return {
        "prompt": prompt,
        "chosen": good,
        "rejected": bad,
        "tools": tools,
        "chosen_reward": float(chosen_reward),
        "rejected_reward": float(rejected_reward),
        "margin": float(chosen_reward) - float(rejected_reward),
        **columns,
    }
