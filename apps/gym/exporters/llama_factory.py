"""LLaMA-Factory's sharegpt files: strictly alternating turns, calls and answers as text, tools as JSON text.

Its loader skips rows that do not alternate, with only a warning. They are dropped here instead, where they are counted.
Answers to parallel calls are one observation, separated by the text that Qwen's templates would write. Templates of
other families would train this text literally, so their rollouts with parallel calls are dropped.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from apps.gym.exporters.dataset_columns import as_text, image_feature
from apps.gym.exporters.image_columns import COLUMN, with_placeholders
from apps.gym.exporters.protocol import Attempt, Feature, Format, Options, Preference, Row
from apps.gym.exporters.training_conversations import (
    Conversation,
    attempt_conversation,
    pair_conversations,
    refuse_gaps,
    thought_text,
)
from apps.gym.traces.messages import Message
from apps.gym.trainability import Dropped

_BETWEEN_ANSWERS = "\n</tool_response>\n<tool_response>\n"
_ASKING = {"human", "observation"}
_THOUGHT_START, _THOUGHT_END = thought_text("\0").split("\0")

_WITHOUT_TEXT = {"mistral", "gemma3"}
"""Families whose function formatter takes all of a turn with calls as JSON."""

_CHOICES = {
    "reasoning": ("inline", "dropped"),
    "arguments": ("object",),
    "tools": ("text", "dropped"),
    "family": ("qwen", "llama3", "deepseek3", "glm4", "gpt_oss", "mistral", "gemma3"),
    "images": COLUMN,
    "injected": ("dropped", "kept"),
}
_REFUSED = {
    ("reasoning", "field"): "Turns are text and have no field for reasoning. Write it inline or leave it out.",
    ("arguments", "text"): "Calls are written as JSON, so text arguments would be encoded twice.",
    ("tools", "column"): "LLaMA-Factory reads tools as JSON text.",
    ("tools", "system"): "LLaMA-Factory's templates insert the tools column into the system message.",
}


def _features(options: Options) -> dict[str, Feature]:
    """Return the columns. With images, turns are plain: its release of `datasets` reads no JSON types in Parquet."""
    turns: Feature = "turn[]" if options.images == "column" else "json[]"
    return {"conversations": turns, "system": "string", "tools": "string", **image_feature(options)}


_NOTE = (
    "Set `dataset_dir` to the folder, which also contains `dataset_info.json`, and the option `family` to the family "
    "of your `template`. "
)


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    yield _whole(attempt_conversation(attempt, options), options)


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    for side in (chosen, rejected):
        _check_family([*side.prompt, *side.completion], options.family)
    prompt, images = with_placeholders(options, chosen.prompt)
    turns = sharegpt_turns(prompt)
    if not turns or turns[-1]["from"] not in _ASKING:
        raise Dropped("turns_do_not_alternate")
    yield {
        "conversations": turns,
        "chosen": _assistant_turn(chosen.completion[0]),
        "rejected": _assistant_turn(rejected.completion[0]),
        "system": _system(prompt),
        "tools": _tools(chosen, options),
        **({} if images is None else {"images": images}),
    }


def kto_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = _whole(attempt_conversation(attempt, options), options)
    yield {**whole, "kto_tag": attempt.reward >= options.good_from}


def sharegpt_turns(messages: list[Message]) -> list[dict[str, str]]:
    """Return all messages except an opening system message. Raises Dropped if the turns do not alternate."""
    refuse_gaps(messages)
    turns: list[dict[str, str]] = []
    for message in messages[1:] if messages and messages[0]["role"] == "system" else messages:
        turn = _turn(message)
        if turn["from"] == "observation" and turns and turns[-1]["from"] == "observation":
            turns[-1] = {"from": "observation", "value": turns[-1]["value"] + _BETWEEN_ANSWERS + turn["value"]}
            continue
        asks = turn["from"] in _ASKING
        if asks != (len(turns) % 2 == 0):
            raise Dropped("turns_do_not_alternate")
        turns.append(turn)
    return turns


def dataset_info(files: Mapping[str, str], options: Options, columns: dict[str, str], **extra: Any) -> dict[str, str]:
    """Return LLaMA-Factory's dataset registry, with one entry called rollouts_<split> per split."""
    columns = columns | ({"images": "images"} if options.images == "column" else {})
    entries = {
        f"rollouts_{split}": {"file_name": name, "formatting": "sharegpt", **extra, "columns": columns}
        for split, name in files.items()
    }
    return {"dataset_info.json": json.dumps(entries, indent=2) + "\n"}


_COLUMNS = {"messages": "conversations", "system": "system", "tools": "tools"}


def _whole(conversation: Conversation, options: Options) -> Row:
    messages, images = with_placeholders(options, [*conversation.prompt, *conversation.completion])
    _check_family(messages, options.family)
    return {
        "conversations": sharegpt_turns(messages),
        "system": _system(messages),
        "tools": _tools(conversation, options),
        **({} if images is None else {"images": images}),
    }


def _check_family(messages: list[Message], family: str) -> None:
    """Raise Dropped if the templates of the family would misread a message, or raise an error."""
    if family == "qwen":
        return
    answered = False
    for message in messages:
        calls = message.get("tool_calls", ())
        if len(calls) > 1 or (answered and message["role"] == "tool"):
            raise Dropped("parallel_calls")
        if message["role"] == "assistant" and family == "gpt_oss" and _split_thought(message["content"])[0]:
            raise Dropped("reasoning_as_answer")
        if calls and message["content"] and family in _WITHOUT_TEXT:
            raise Dropped("text_beside_call")
        answered = message["role"] == "tool"


def _turn(message: Message) -> dict[str, str]:
    if message["role"] == "assistant":
        return _assistant_turn(message)
    if message["role"] == "system":
        raise Dropped("system_message_in_the_middle")
    return {"from": "human" if message["role"] == "user" else "observation", "value": message["content"]}


def _assistant_turn(message: Message) -> dict[str, str]:
    """Return an assistant turn that LLaMA-Factory's formatter (0.9.5) reads as the same thought, text and calls.

    The formatter reads calls from the first <tool_call> block, wherever it is. It takes the rest as text before them.
    Without a block, it removes the first thought and parses the rest as JSON.
    """
    calls = message.get("tool_calls")
    if not calls:
        return {"from": "gpt", "value": message["content"]}
    thought, text = _split_thought(message["content"])
    before = f"{thought}{text}\n" if text else thought
    written = [{"name": call["function"]["name"], "arguments": call["function"]["arguments"]} for call in calls]
    # "<" occurs only inside JSON strings. As an escape, it cannot open or close a block or a thought.
    called = as_text(written[0] if len(written) == 1 else written).replace("<", "\\u003c")
    if not text and "<tool_call>" not in thought:
        return {"from": "function_call", "value": thought + called}
    while (block := f"<tool_call>{called}</tool_call>") in before:
        called += " "
    return {"from": "function_call", "value": block + before if "<tool_call>" in before else before + block}


def _split_thought(content: str) -> tuple[str, str]:
    if content.startswith(_THOUGHT_START) and _THOUGHT_END in content:
        thought, _, text = content.partition(_THOUGHT_END)
        return thought + _THOUGHT_END, text
    return "", content


def _system(prompt: list[Message]) -> str:
    return prompt[0]["content"] if prompt and prompt[0]["role"] == "system" else ""


def _tools(conversation: Conversation, options: Options) -> str:
    """Return function descriptions as JSON text, or an empty text without tools, because every row has every column."""
    if options.tools != "text" or not conversation.tools:
        return ""
    return as_text([tool["function"] for tool in conversation.tools])


FORMATS = [
    Format(
        slug="llama_factory_sft",
        title="LLaMA-Factory SFT",
        trainer="LLaMA-Factory",
        row_kind="demonstrations",
        rows=sft_rows,
        features=_features,
        choices=_CHOICES,
        refused=_REFUSED,
        encodings=("jsonl",),
        note=_NOTE + "The loss covers the model's turns: `gpt` and `function_call`.",
        companions=lambda files, options: dataset_info(files, options, _COLUMNS),
    ),
    Format(
        slug="llama_factory_dpo",
        title="LLaMA-Factory DPO",
        trainer="LLaMA-Factory",
        row_kind="preferences",
        rows=dpo_rows,
        features=lambda options: {**_features(options), "chosen": "json", "rejected": "json"},
        # Its sides are nested, which its Parquet reader cannot read.
        choices={name: values for name, values in {**_CHOICES, "level": ("step",)}.items() if name != "images"},
        refused={
            **_REFUSED,
            ("level", "trajectory"): "LLaMA-Factory takes one message per side. Set level to step.",
        },
        encodings=("jsonl",),
        note=_NOTE + "The loss covers one message per side.",
        companions=lambda files, options: dataset_info(
            files, options, {**_COLUMNS, "chosen": "chosen", "rejected": "rejected"}, ranking=True
        ),
    ),
    Format(
        slug="llama_factory_kto",
        title="LLaMA-Factory KTO",
        trainer="LLaMA-Factory",
        row_kind="labels",
        rows=kto_rows,
        features=lambda options: {**_features(options), "kto_tag": "bool"},
        choices={**_CHOICES, "good_from": ("0.5",)},
        refused=_REFUSED,
        encodings=("jsonl",),
        note=_NOTE + "Rollouts that reach the “Minimum reward for good” are labelled good.",
        companions=lambda files, options: dataset_info(files, options, {**_COLUMNS, "kto_tag": "kto_tag"}),
    ),
]
