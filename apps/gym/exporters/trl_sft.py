"""Demonstrations as TRL conversational SFT rows: {"messages", "tools"} and columns that say where they come from."""

from typing import Any

from apps.gym.events import TraceUnion
from apps.gym.items import TaskRow
from apps.gym.messages import completion_messages, nested_tools, offered_tools, prompt_messages


def demonstration_row(
    events: list[TraceUnion], row: TaskRow, *, reward: float, columns: dict[str, Any]
) -> dict[str, Any]:
    """One row. Raises Dropped.

    `columns` must not be null, nor be called id, source, model, system_prompt, type, message, payload or task_name:
    `datasets` takes some of those sets of columns for agent traces, and NeMo RL uses the last one itself.
    """
    return {
        "messages": [*prompt_messages(events), *completion_messages(events)],
        "tools": nested_tools(offered_tools(events, row)),
        # A float always: a file whose first reward is `1` fails to load when a later one is 0.5.
        "reward": float(reward),
        **columns,
    }
