"""Datasets of environments of the library verifiers, which prime-rl trains on: prompt, answer, info, task."""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import as_text
from apps.gym.exporters.protocol import Format, Options, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    ground_truth,
    question_messages,
    task_columns,
    verifier_fields,
)
from apps.gym.traces.messages import nested_tools


def prompt_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    # `info` is text, because rows have different fields; verifiers parses it.
    info = {**verifier_fields(task.task), **task_columns(task), "tools": nested_tools(task.tools)}
    yield {
        "prompt": question_messages(task, options),
        "answer": ground_truth(task.task),
        "info": as_text(info),
        "task": task.environment,
    }


FORMATS = [
    Format(
        slug="verifiers_prompts",
        title="verifiers and prime-rl, prompts",
        trainer="verifiers",
        row_kind="tasks",
        rows=prompt_rows,
        features=lambda _: {"prompt": "json[]", "answer": "string", "info": "string", "task": "string"},
        choices={"opening": OPENINGS},
        encodings=("jsonl", "parquet"),
        note="Pass the file as the dataset of an environment: `vf.SingleTurnEnv(dataset=load_dataset(…), rubric=…)`. "
        "`info` is JSON text with the verifier's fields and the tools.",
    ),
]
