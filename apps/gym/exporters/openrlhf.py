"""OpenRLHF 0.11: messages for SFT, three lists of messages for DPO and reward models, prompts for RL.

It supports tools nowhere: they are written into the system message. Columns called prompt and chosen would be read as
lists of characters by newer `datasets`, so they are called otherwise.
"""

from collections.abc import Iterator

from apps.gym.exporters.chosen_and_rejected import pair_conversations
from apps.gym.exporters.dataset_columns import (
    ATTEMPT_FEATURES,
    PAIR_FEATURES,
    attempt_columns,
    margin_column,
    pair_columns,
)
from apps.gym.exporters.protocol import Attempt, Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.task_questions import OPENINGS, TASK_FEATURES, ground_truth, question_messages, task_columns
from apps.gym.exporters.training_conversations import attempt_conversation

_CHOICES = {
    "reasoning": ("field", "inline", "dropped"),
    "arguments": ("object",),
    "numbers": ("exact", "any"),
    "tools": ("system", "dropped"),
}
_NO_TOOLS = "OpenRLHF passes no tools to the chat template: the model would be asked without them. Write them into the \
system message."
_REFUSED = {
    ("tools", "column"): _NO_TOOLS,
    ("tools", "text"): _NO_TOOLS,
    ("arguments", "text"): "Most chat templates write arguments that are text twice encoded, or fail.",
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
        # Its reward model takes this only where its loss is told to, and 0 for pairs without.
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
        makes="demonstrations",
        rows=sft_rows,
        features=lambda _: {"messages": "json[]", **ATTEMPT_FEATURES},
        choices=_CHOICES,
        refused=_REFUSED,
        encodings=("jsonl",),
        note="--data.input_key messages --data.apply_chat_template --data.multiturn: without multiturn the last "
        "message alone is trained. --data.max_len is 2048 unless set.",
    ),
    Format(
        slug="openrlhf_dpo",
        title="OpenRLHF DPO and reward model",
        trainer="OpenRLHF",
        makes="preferences",
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
            ("prompt", "implicit"): "OpenRLHF cuts the rejected side where the prompt of the chosen side ends, by "
            "characters: trajectories that part earlier become garbage.",
        },
        encodings=("jsonl",),
        note="--data.prompt_key context_messages --data.chosen_key chosen_messages --data.rejected_key "
        "rejected_messages. The loss of a whole trajectory covers tool outputs; --data.max_len is 512 unless set.",
    ),
    Format(
        slug="openrlhf_rl",
        title="OpenRLHF RL, prompts",
        trainer="OpenRLHF",
        makes="tasks",
        rows=rl_rows,
        features=lambda _: {"input": "json[]", "label": "string", "datasource": "string", **TASK_FEATURES},
        choices={"opening": OPENINGS},
        encodings=("jsonl",),
        note="--data.input_key input --data.label_key label. OpenRLHF samples its own completions. "
        "Tools are no part of these rows: its own sampling offers none.",
    ),
]
