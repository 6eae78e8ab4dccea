"""NeMo RL: `openai_format` for SFT, `PreferenceDataset` for DPO, NeMo Gym task rows for GRPO.

Its DPO loader drops tools and trains the last message of a completion alone: pairs are of the level step, and tools are
written into the system message.
"""

from collections.abc import Iterator

from apps.gym.exporters.chosen_and_rejected import pair_conversations
from apps.gym.exporters.dataset_columns import (
    ATTEMPT_FEATURES,
    PAIR_FEATURES,
    attempt_columns,
    pair_columns,
    tools_column,
    tools_feature,
)
from apps.gym.exporters.protocol import Attempt, Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.task_questions import opened_row
from apps.gym.exporters.training_conversations import attempt_conversation


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    yield {
        "messages": [*whole.prompt, *whole.completion],
        **tools_column(whole, options),
        **attempt_columns(attempt),
    }


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    yield {
        "context": chosen.prompt,
        "completions": [
            {"rank": 0, "completion": chosen.completion},
            {"rank": 1, "completion": rejected.completion},
        ],
        **pair_columns(pair),
    }


def task_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    """The row as NeMo Gym has it, with the tools that its environment names only when a session is seeded: an agent
    there offers those of the row alone. Its nulls are left out, since NeMo Gym refuses them for tools and tool_choice.
    """
    row = opened_row(task, options)
    params = {key: value for key, value in row["responses_create_params"].items() if value is not None}
    yield {
        **row,
        "responses_create_params": {**params, **({"tools": task.tools} if task.tools else {})},
        "agent_ref": task.agent_ref or {"type": "responses_api_agents", "name": task.agent},
    }


FORMATS = [
    Format(
        slug="nemo_rl_sft",
        title="NeMo RL SFT",
        trainer="NeMo RL",
        makes="demonstrations",
        rows=sft_rows,
        features=lambda options: {"messages": "json[]", **tools_feature(options), **ATTEMPT_FEATURES},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "tools": ("column", "system", "dropped"),
        },
        refused={
            ("arguments", "text"): "NeMo RL renders with the model's chat template, which writes arguments that are "
            "text twice encoded, or fails."
        },
        encodings=("jsonl",),
        note="dataset_name: openai_format with use_preserving_dataset: true. The loss covers every message of the "
        "assistant.",
    ),
    Format(
        slug="nemo_rl_dpo",
        title="NeMo RL DPO",
        trainer="NeMo RL",
        makes="preferences",
        rows=dpo_rows,
        features=lambda _: {"context": "json[]", "completions": "json[]", **PAIR_FEATURES},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "tools": ("system", "dropped"),
            "level": ("step",),
        },
        refused={
            ("level", "trajectory"): "NeMo RL trains the last message of a completion alone: of a whole trajectory it "
            "would learn the last answer and nothing of the way there. Use the level step.",
            ("tools", "column"): "NeMo RL's DPO loader drops a column of tools: the model would be asked without them. "
            "Write them into the system message.",
            ("tools", "text"): "NeMo RL's DPO loader drops a column of tools: the model would be asked without them. "
            "Write them into the system message.",
            ("arguments", "text"): "NeMo RL renders with the model's chat template, which writes arguments that are "
            "text twice encoded, or fails.",
        },
        encodings=("jsonl",),
        note="dataset_name: PreferenceDataset. The loss covers the one message of each completion. Tools are written "
        "as Qwen and its kin have them: take other templates' own wording by dropping them here.",
    ),
    Format(
        slug="nemo_rl_tasks",
        title="NeMo Gym and NeMo RL, task rows",
        trainer="NeMo RL",
        makes="tasks",
        rows=task_rows,
        features=lambda _: {},
        choices={"opening": ("task", "attempts")},
        encodings=("jsonl", "jsonl.gz"),
        note="dataset_name: NemoGymDataset with processor: nemo_gym_data_processor; lines are kept as they are. "
        "ng_collect_rollouts takes the same file. The tasks' own prompts, since an agent that GymWeb serves puts its "
        "system prompt and examples before them; for other agents set opening to attempts.",
    ),
]
