"""ART (OpenPipe's openpipe-art): one trajectory per line, with the fields of its class `art.Trajectory`.

ART groups trajectories of one task for GRPO; `metadata.task_id` names the task.
"""

from collections.abc import Iterator

from apps.gym.exporters.dataset_columns import attempt_columns
from apps.gym.exporters.protocol import Attempt, Format, Options, Row
from apps.gym.exporters.training_conversations import attempt_conversation


def trajectory_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    origin = {name: value for name, value in attempt_columns(attempt).items() if name != "reward"}
    yield {
        "messages_and_choices": [*whole.prompt, *whole.completion],
        **({"tools": whole.tools} if whole.tools else {}),
        "reward": float(attempt.reward),
        "metrics": {name: float(value) for name, value in attempt.components.items()},
        "metadata": {
            **{name: value for name, value in origin.items() if isinstance(value, str | int | float)},
            "stop_reason": attempt.stop_reason,
            "model_version": attempt.model_version,
            "repeat": attempt.repeat,
        },
        "logs": [],
    }


FORMATS = [
    Format(
        slug="art_trajectories",
        title="ART trajectories",
        trainer="ART",
        row_kind="scored",
        rows=trajectory_rows,
        features=lambda _: {
            "messages_and_choices": "json[]",
            "tools": "json[]",
            "reward": "float64",
            "metrics": "json",
            "metadata": "json",
            "logs": "json[]",
        },
        choices={
            "reasoning": ("inline", "dropped"),
            "arguments": ("text",),
            "malformed": ("text", "dropped"),
            "tools": ("column",),
            "injected": ("dropped", "kept"),
        },
        refused={("reasoning", "field"): "Its messages have no field for reasoning. Use inline or dropped."},
        encodings=("jsonl", "jsonl.gz"),
        omits_tokens=True,
        note="Read each line with `art.Trajectory(**json.loads(line))`, and group the trajectories by "
        "`metadata.task_id`. Without logprobs, ART trains all assistant messages.",
    ),
]
