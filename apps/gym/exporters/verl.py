"""verl: SFT as Parquet with JSON text, and RL prompts.

Nested Parquet is corrupted even by one row with two tools: pandas unifies their parameters and writes nulls into them.
So messages and tools are text, which a dataset class of a few lines reads back (`examples/verl/`).
"""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import ATTEMPT_FEATURES, as_text, attempt_columns
from apps.gym.exporters.protocol import Attempt, Format, Options, Row, TaskPrompt
from apps.gym.exporters.task_questions import OPENINGS, ground_truth, question_messages, task_columns
from apps.gym.exporters.training_conversations import attempt_conversation
from apps.gym.traces.messages import nested_tools


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    yield {
        "messages": as_text([*whole.prompt, *whole.completion]),
        "tools": as_text(whole.tools),
        **attempt_columns(attempt),
    }


def rl_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    """No `tools_kwargs`: an empty one cannot be written to Parquet, and different ones are unified with nulls. Schemas
    of tools are text, for the same reason."""
    figures = task_columns(task)
    yield {
        "data_source": task.dataset,
        "agent_name": "tool_agent" if task.tools else "single_turn_agent",
        "prompt": question_messages(task, options),
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
        makes="demonstrations",
        rows=sft_rows,
        features=lambda _: {"messages": "string", "tools": "string", **ATTEMPT_FEATURES},
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("object",),
            "tools": ("text", "system"),
        },
        refused={
            ("tools", "column"): "verl reads nested columns through pandas, which writes nulls into the parameters of "
            "tools and the arguments of calls.",
            ("arguments", "text"): "Chat templates of the Qwen 2.5 kind write arguments that are text twice encoded.",
        },
        encodings=("parquet",),
        note="Parquet only, with data.custom_cls.path and .name set to the class in examples/verl/. The loss covers "
        "the turns of the assistant. Stock Qwen 3 templates fail verl's check of several turns: use one for training.",
    ),
    Format(
        slug="verl_rl",
        title="verl RL, prompts",
        trainer="verl",
        makes="tasks",
        rows=rl_rows,
        features=lambda _: {
            "data_source": "string",
            "agent_name": "string",
            "prompt": "json[]",
            "ability": "string",
            "reward_model": "json",
            "extra_info": "json",
        },
        choices={"opening": OPENINGS},
        encodings=("jsonl",),
        note="verl samples its own completions and scores them by data_source and ground_truth, which is text always. "
        "Tasks with tools go to its tool_agent, which calls what its tool_config_path names: extra_info.tools has the "
        "schemas of theirs, as text.",
    ),
]
