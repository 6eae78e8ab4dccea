"""Unsloth, which wraps TRL: prompt and completion. A file with messages alone would need a function to format it."""

from apps.gym.exporters.protocol import Format
from apps.gym.exporters.trl import CHAT, attempt_features, completion_rows

FORMATS = [
    Format(
        slug="unsloth_sft",
        title="Unsloth SFT",
        trainer="Unsloth",
        makes="demonstrations",
        rows=completion_rows,
        features=attempt_features("prompt", "completion"),
        choices=CHAT,
        note="Then train_on_responses_only(instruction_part, response_part), as Unsloth's own guides do. For DPO and "
        "GRPO it takes the files of TRL.",
    ),
]
