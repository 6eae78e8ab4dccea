"""NeMo RL: `openai_format` for SFT, `PreferenceDataset` for DPO, NeMo Gym task rows for GRPO.

Its DPO loader drops tools and trains only the last message of a completion. Pairs are therefore split at step level,
and tools are written into the system message.
"""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import (
    ATTEMPT_FEATURES,
    PAIR_FEATURES,
    pair_columns,
    tools_feature,
)
from apps.gym.exporters.protocol import Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.training_conversations import opened_row, pair_conversations
from apps.gym.exporters.trl import sft_rows


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
    """Yield the row in NeMo Gym format.

    It includes tools that the environment declares only when a session is seeded, because NeMo Gym agents offer only
    the tools of the row. Nulls are removed, because NeMo Gym rejects them for tools and tool_choice.
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
        row_kind="demonstrations",
        rows=sft_rows,
        features=lambda options: {"messages": "json[]", **tools_feature(options), **ATTEMPT_FEATURES},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "parallel_calls": ("kept", "split"),
            "tools": ("column", "system", "dropped"),
            "injected": ("dropped", "kept"),
        },
        refused={
            ("arguments", "text"): "NeMo RL renders with the model's chat template, which encodes text arguments "
            "twice or fails."
        },
        encodings=("jsonl",),
        note="Set `dataset_name` to `openai_format` and `use_preserving_dataset` to `true`. The loss covers all "
        "assistant messages.",
    ),
    Format(
        slug="nemo_rl_dpo",
        title="NeMo RL DPO",
        trainer="NeMo RL",
        row_kind="preferences",
        rows=dpo_rows,
        features=lambda _: {"context": "json[]", "completions": "json[]", **PAIR_FEATURES},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "tools": ("system", "dropped"),
            "level": ("step",),
        },
        refused={
            ("level", "trajectory"): "NeMo RL trains only on the last message of a completion, so earlier turns of "
            "a trajectory would be ignored. Set level to step.",
            ("tools", "column"): "NeMo RL's DPO loader drops a tools column, so the model would not see the tools. "
            "Write them into the system message.",
            ("tools", "text"): "NeMo RL's DPO loader drops a tools column, so the model would not see the tools. "
            "Write them into the system message.",
            ("arguments", "text"): "NeMo RL renders with the model's chat template, which encodes text arguments "
            "twice or fails.",
        },
        encodings=("jsonl",),
        note="Set `dataset_name` to `PreferenceDataset`. The loss covers the message of each completion. Tools are "
        "written in the format of Qwen templates. For other templates, leave the tools out in the options and describe "
        "them in the system prompt.",
    ),
    Format(
        slug="nemo_rl_tasks",
        title="NeMo Gym and NeMo RL, task rows",
        trainer="NeMo RL",
        row_kind="tasks",
        rows=task_rows,
        features=lambda _: {},
        open_columns=True,
        choices={"opening": ("task", "attempts")},
        encodings=("jsonl", "jsonl.gz"),
        note="Set `dataset_name` to `NemoGymDataset` and `processor` to `nemo_gym_data_processor`. "
        "`ng_collect_rollouts` reads the same file. Prompts exclude the system prompt and examples, because GymWeb "
        "agents add them. For other agents, choose “System prompt, examples and task” under Prompt contents "
        "(`opening=attempts`).",
    ),
]
