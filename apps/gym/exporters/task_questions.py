"""Tasks as prompts for trainers that sample for themselves."""

import json
from typing import Any

from apps.gym.exporters.protocol import Feature, Options, Row, TaskPrompt
from apps.gym.traces.items import TaskRow, input_items, message
from apps.gym.traces.messages import Dropped, Message, item_messages

ANSWER_FIELDS = ("expected_answer", "ground_truth", "answer", "reference_answer", "label")
_NOT_FOR_THE_VERIFIER = {"responses_create_params", "agent_ref", "external_id", "split", "tags"}

OPENINGS = ("attempts", "task")

TASK_FEATURES: dict[str, Feature] = {
    "dataset": "string",
    "task_id": "string",
    "task_index": "int64",
    "attempts": "int64",
    "mean_reward": "float64",
    "solve_rate": "float64",
}


def opened_row(task: TaskPrompt, options: Options) -> TaskRow:
    """The row with the prompt that is wanted. Raises Dropped."""
    if options.opening == "task":
        return task.task
    if task.asked is None:
        raise Dropped("prompt_template_gap")
    return task.asked


def question_messages(task: TaskPrompt, options: Options) -> list[Message]:
    """The prompt, instructions as the system message. Raises Dropped."""
    row = opened_row(task, options)
    instructions = row["responses_create_params"].get("instructions")
    opening = [message("system", instructions)] if isinstance(instructions, str) and instructions else []
    asked = item_messages([*opening, *input_items(row)])
    if not any(one["role"] == "user" for one in asked):
        raise Dropped("no_user_message")
    return asked


def ground_truth(row: TaskRow) -> str:
    """What the verifier compares with, as text always: a column of numbers in one row and text in another cannot load.

    The expected answer where the task has one of the usual fields, else all fields of the verifier as JSON.
    """
    found: Any = next((row[name] for name in ANSWER_FIELDS if row.get(name) is not None), None)
    if found is None:
        found = {key: value for key, value in row.items() if key not in _NOT_FOR_THE_VERIFIER}
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def task_columns(task: TaskPrompt) -> Row:
    """`attempts` is 0 where nothing is known of the task yet; its figures are then 0.0, since nothing may be null."""
    group = task.group
    return {
        "dataset": task.dataset,
        "task_id": task.task_id,
        "task_index": task.task_index,
        "attempts": group.size if group else 0,
        "mean_reward": group.mean if group else 0.0,
        "solve_rate": group.solved / group.size if group and group.size else 0.0,
        **task.columns,
    }
