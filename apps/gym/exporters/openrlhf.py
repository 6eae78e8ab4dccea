"""OpenRLHF 0.11: messages for SFT, three lists of messages for DPO and reward models, prompts for RL.

It does not support tools, so they are written into the system message. Columns called prompt and chosen would be read
as lists of characters by newer `datasets`, so they have other names.
"""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import (
    ATTEMPT_FEATURES,
    PAIR_FEATURES,
    attempt_columns,
    margin_column,
    pair_columns,
)
from apps.gym.exporters.protocol import Attempt, Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    TASK_FEATURES,
    attempt_conversation,
    ground_truth,
    pair_conversations,
    question_messages,
    task_columns,
)

_CHOICES = {
    "reasoning": ("field", "inline", "dropped"),
    "arguments": ("object",),
    "numbers": ("exact", "any"),
    "parallel_calls": ("kept", "split"),
    "tools": ("system", "dropped"),
    "injected": ("dropped", "kept"),
}
_NO_TOOLS = "OpenRLHF passes no tools to the chat template: the model would be asked without them. Write them into the \
system message."
_REFUSED = {
    ("tools", "column"): _NO_TOOLS,
    ("tools", "text"): _NO_TOOLS,
    ("arguments", "text"): "Most chat templates encode text arguments twice or fail.",
}


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    yield {"messages": [*whole.prompt, *whole.completion], **attempt_columns(attempt)}


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    yield {
        "context_messages": chosen.prompt,
        "chosen_messages": chosen.completion,
        "rejected_messages": rejected.completion,
        # Its reward model uses this only if its loss is configured to, and 0 for pairs without it.
        **margin_column("margin", pair),
        **pair_columns(pair),
    }


def rl_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    yield {
        "input": question_messages(task, options),
        "label": ground_truth(task.task),
        "datasource": task.environment,
        **task_columns(task),
    }


FORMATS = [
    Format(
        slug="openrlhf_sft",
        title="OpenRLHF SFT",
        trainer="OpenRLHF",
        row_kind="demonstrations",
        rows=sft_rows,
        features=lambda _: {"messages": "json[]", **ATTEMPT_FEATURES},
        choices=_CHOICES,
        refused=_REFUSED,
        encodings=("jsonl",),
        note="Use `--data.input_key messages --data.apply_chat_template --data.multiturn`. Without multiturn, only "
        "the last message is trained. `--data.max_len` defaults to 2048.",
    ),
    Format(
        slug="openrlhf_dpo",
        title="OpenRLHF DPO and reward model",
        trainer="OpenRLHF",
        row_kind="preferences",
        rows=dpo_rows,
        features=lambda _: {
            "context_messages": "json[]",
            "chosen_messages": "json[]",
            "rejected_messages": "json[]",
            "margin": "float64",
            **PAIR_FEATURES,
        },
        choices={**_CHOICES, "level": ("step", "trajectory"), "prompt": ("explicit",)},
        refused={
            **_REFUSED,
            ("prompt", "implicit"): "OpenRLHF cuts the rejected side at the character where the chosen side's "
            "prompt ends. Trajectories that diverge earlier would be corrupted.",
        },
        encodings=("jsonl",),
        note="Use `--data.prompt_key context_messages --data.chosen_key chosen_messages --data.rejected_key "
        "rejected_messages`. With level “Whole rollouts”, the loss includes tool outputs. `--data.max_len` defaults "
        "to 512.",
    ),
    Format(
        slug="openrlhf_rl",
        title="OpenRLHF RL, prompts",
        trainer="OpenRLHF",
        row_kind="tasks",
        rows=rl_rows,
        features=lambda _: {"input": "json[]", "label": "string", "datasource": "string", **TASK_FEATURES},
        choices={"opening": OPENINGS},
        encodings=("jsonl",),
        note="Use `--data.input_key input --data.label_key label`. OpenRLHF samples its own completions, without "
        "tools, so these rows contain none.",
    ),
]
