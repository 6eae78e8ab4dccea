"""Axolotl: conversations with arguments and parameters as text for SFT, rendered text for DPO.

Its DPO chat templates reduce messages to role and content, and it crashes on lists of messages. Pairs are therefore
written as text, rendered as ChatML with Hermes tool calls.
"""

from collections.abc import Iterator
from typing import Any

from apps.gym.exporters.dataset_columns import as_text
from apps.gym.exporters.protocol import Attempt, Format, Options, Preference, Row
from apps.gym.exporters.training_conversations import (
    attempt_conversation,
    completion_text,
    marked_messages,
    pair_conversations,
    prompt_text,
)

_DESTROYED = (
    "Axolotl's DPO keeps only the role and content of messages, which loses tool calls. Pairs are written as text."
)


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options, loss="marked")
    tools = [_with_text_parameters(tool) for tool in whole.tools]
    column = {"tools": tools} if options.tools == "column" else {}
    yield {"messages": marked_messages(whole, "train", False), **column}


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    yield {
        "prompt": prompt_text(chosen.prompt),
        "chosen": completion_text(chosen.completion),
        "rejected": completion_text(rejected.completion),
    }


def _with_text_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": as_text(function["parameters"])}}


FORMATS = [
    Format(
        slug="axolotl_sft",
        title="Axolotl SFT",
        trainer="Axolotl",
        row_kind="demonstrations",
        rows=sft_rows,
        features=lambda options: {"messages": "json[]", **({"tools": "json[]"} if options.tools == "column" else {})},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("text", "object"),
            "malformed": ("dropped",),
            "parallel_calls": ("kept", "split"),
            "tools": ("column", "system", "dropped"),
        },
        refused={("malformed", "text"): "Axolotl parses text arguments as JSON and would fail on these."},
        encodings=("jsonl", "jsonl.gz"),
        note="Set `path` to the export folder, not to the file: with the file alone, Axolotl guesses the types. Set "
        "`type: chat_template`, `field_messages: messages`, `field_tools: tools`, `field_thinking: reasoning_content`. "
        "The loss covers the assistant's turns. For captured agents, also set `message_field_training: train`: turns "
        "that the model did not write have `train: false`.",
    ),
    Format(
        slug="axolotl_dpo",
        title="Axolotl DPO, as text",
        trainer="Axolotl",
        row_kind="preferences",
        rows=dpo_rows,
        features=lambda _: {"prompt": "string", "chosen": "string", "rejected": "string"},
        choices={
            "reasoning": ("inline", "dropped"),
            "arguments": ("object", "text"),
            "tools": ("system", "dropped"),
            "level": ("step", "trajectory"),
        },
        refused={
            ("tools", "column"): _DESTROYED,
            ("tools", "text"): _DESTROYED,
            ("reasoning", "field"): "Text has no field for reasoning. Write it inline or leave it out.",
        },
        note="For models that use ChatML with Hermes tool calls, such as Qwen. Leave out `type` in the "
        "configuration: prompt, chosen and rejected are used unchanged.",
    ),
]
