"""verl: SFT as Parquet with JSON text, and RL prompts.

Nested Parquet is corrupted even by one row with two tools: pandas unifies their parameters and writes nulls into them.
Messages and tools are therefore text, which a short dataset class parses (`examples/verl/`).
"""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import ATTEMPT_FEATURES, as_text, attempt_columns, image_feature
from apps.gym.exporters.image_columns import COLUMN, with_placeholders
from apps.gym.exporters.protocol import Attempt, Format, Options, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    attempt_conversation,
    ground_truth,
    question_messages,
    task_columns,
)
from apps.gym.traces.messages import nested_tools


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    messages, images = with_placeholders(options, [*whole.prompt, *whole.completion])
    yield {
        "messages": as_text(messages),
        "tools": as_text(whole.tools),
        **({} if images is None else {"images": images}),
        **attempt_columns(attempt),
    }


def rl_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    """Yield a row without `tools_kwargs`: Parquet cannot store an empty one, and unifies different ones with nulls.

    Tool schemas are text for the same reason.
    """
    figures = task_columns(task)
    messages, images = with_placeholders(options, question_messages(task, options))
    yield {
        "data_source": task.dataset,
        "agent_name": "tool_agent" if task.tools else "single_turn_agent",
        "prompt": messages,
        # JSON cannot hold bytes, but verl also reads images from data URLs.
        **({} if images is None else {"images": [{"image": image} for image in images]}),
        "ability": task.environment,
        "reward_model": {"style": "rule", "ground_truth": ground_truth(task.task)},
        "extra_info": {
            "split": task.split or "train",
            "index": task.task_index,
            "task_id": task.task_id,
            "attempts": figures["attempts"],
            "mean_reward": figures["mean_reward"],
            "solve_rate": figures["solve_rate"],
            "tools": as_text(nested_tools(task.tools)),
        },
    }


FORMATS = [
    Format(
        slug="verl_sft",
        title="verl SFT",
        trainer="verl",
        row_kind="demonstrations",
        rows=sft_rows,
        features=lambda options: {
            "messages": "string",
            "tools": "string",
            **image_feature(options),
            **ATTEMPT_FEATURES,
        },
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "parallel_calls": ("kept", "split"),
            "tools": ("text", "system"),
            "images": COLUMN,
            "injected": ("dropped", "kept"),
        },
        refused={
            ("tools", "column"): "verl reads nested columns with pandas, which adds nulls to tool parameters and "
            "call arguments.",
            ("arguments", "text"): "Chat templates like that of Qwen 2.5 encode text arguments twice.",
        },
        encodings=("parquet",),
        note="Parquet only. Set `data.custom_cls.path` and `.name` to the class in `examples/verl/`. The loss covers "
        "the assistant's turns. Stock Qwen 3 templates fail verl's multi-turn check: use a training template.",
    ),
    Format(
        slug="verl_rl",
        title="verl RL, prompts",
        trainer="verl",
        row_kind="tasks",
        rows=rl_rows,
        features=lambda options: {
            "data_source": "string",
            "agent_name": "string",
            "prompt": "json[]",
            **({"images": "json[]"} if options.images == "column" else {}),
            "ability": "string",
            "reward_model": "json",
            "extra_info": "json",
        },
        choices={"opening": OPENINGS, "images": COLUMN},
        encodings=("jsonl",),
        image_encodings=("jsonl",),
        note="verl samples its own completions and scores them by `data_source` and `ground_truth`, which is always "
        "text. Tasks with tools use its `tool_agent`, which calls the tools in `tool_config_path`. "
        "`extra_info.tools` has their schemas as text.",
    ),
]
