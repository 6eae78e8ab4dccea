"""OpenAI's fine-tuning files, which Azure and other hosts accept: SFT, one-turn preferences and RFT prompts.

Reasoning is dropped, because the format has no field for it; arguments are text; tool messages have no name.
"""

from collections.abc import Iterator
from typing import Any

from apps.gym.exporters.image_columns import move_tool_images
from apps.gym.exporters.protocol import Attempt, Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    TASK_FEATURES,
    Conversation,
    attempt_conversation,
    ground_truth,
    marked_messages,
    pair_conversations,
    question_messages,
    task_columns,
)
from apps.gym.traces.items import TaskRow
from apps.gym.traces.messages import Message, nested_tools
from apps.gym.trainability import Dropped

_CHOICES = {
    "reasoning": ("dropped",),
    "arguments": ("text",),
    "malformed": ("dropped", "text"),
    "parallel_calls": ("kept", "split"),
    "tools": ("column",),
    "images": ("parts", "dropped"),
}
_REFUSED = {
    ("reasoning", "field"): "The format has no field for reasoning. A file that has one is rejected at upload.",
    (
        "reasoning",
        "inline",
    ): "Providers that read this format keep reasoning separate from the text. "
    "Inline reasoning would become part of the answer.",
    ("arguments", "object"): "The format's schema accepts call arguments as text only.",
}
_NOTE = (
    "For Azure and other hosts of this format. OpenAI no longer accepts new users of fine-tuning. "
    "Needs at least 10 rows. "
)


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options, loss="marked")
    yield {"messages": _plain(marked_messages(whole, "weight", 0)), **_offer(whole, attempt.task)}


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    yield {
        "input": {"messages": _plain(chosen.prompt), **_offer(chosen, pair.chosen.task)},
        "preferred_output": _plain(chosen.completion),
        "non_preferred_output": _plain(rejected.completion),
    }


def rft_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    messages = question_messages(task, options)
    if messages[-1]["role"] != "user":
        # The host refuses such a row, because the model must answer a user message.
        raise Dropped("prompt_without_final_user_message")
    tools = {"tools": nested_tools(task.tools)} if task.tools else {}
    yield {"messages": _plain(messages), **tools, "reference_answer": ground_truth(task.task), **task_columns(task)}


def _plain(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the messages. The format has images only in messages of users."""
    return [_plain_message(message) for message in move_tool_images(messages)]


def _plain_message(message: Message) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if key != "name"}
    if isinstance(plain["content"], list):
        plain["content"] = [_plain_part(part) for part in plain["content"]]
    if plain.get("tool_calls") and not plain["content"]:
        del plain["content"]
    return plain


def _plain_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": part["image"]}} if part["type"] == "image" else part


def _offer(whole: Conversation, row: TaskRow) -> Row:
    """Return the tools. `parallel_tool_calls` is left out without tools, because hosts reject it then."""
    if not whole.tools:
        return {}
    parallel = row["responses_create_params"].get("parallel_tool_calls")
    return {"tools": whole.tools, "parallel_tool_calls": True if parallel is None else bool(parallel)}


FORMATS = [
    Format(
        slug="openai_sft",
        title="OpenAI-style SFT",
        trainer="OpenAI-style",
        row_kind="demonstrations",
        rows=sft_rows,
        features=lambda _: {"messages": "json[]", "tools": "json[]", "parallel_tool_calls": "bool"},
        choices=_CHOICES,
        refused=_REFUSED,
        encodings=("jsonl",),
        note=_NOTE + "The loss covers the assistant's turns. Turns that the model did not write have `weight` 0.",
    ),
    Format(
        slug="openai_dpo",
        title="OpenAI-style preferences",
        trainer="OpenAI-style",
        row_kind="preferences",
        rows=dpo_rows,
        features=lambda _: {"input": "json", "preferred_output": "json[]", "non_preferred_output": "json[]"},
        choices={**_CHOICES, "level": ("step",)},
        refused={
            **_REFUSED,
            ("level", "trajectory"): "The format trains one assistant turn per side. Set level to step.",
        },
        encodings=("jsonl",),
        note=_NOTE + "The loss covers one message per side.",
    ),
    Format(
        slug="openai_rft",
        title="OpenAI-style RFT, prompts",
        trainer="OpenAI-style",
        row_kind="tasks",
        rows=rft_rows,
        features=lambda _: {"messages": "json[]", "tools": "json[]", "reference_answer": "string", **TASK_FEATURES},
        choices={"opening": OPENINGS, "images": ("parts", "dropped")},
        encodings=("jsonl",),
        note="For reinforcement fine-tuning with a grader that reads `item.reference_answer`. OpenAI no longer accepts "
        "new users of fine-tuning.",
    ),
]
