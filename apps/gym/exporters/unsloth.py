"""Unsloth, which wraps TRL: prompt and completion. Files with only messages would need a formatting function."""

from apps.gym.exporters.protocol import Format
from apps.gym.exporters.trl import CHAT, MLX_LM, attempt_features, completion_rows

FORMATS = [
    Format(
        slug="unsloth_sft",
        title="Unsloth SFT",
        trainer="Unsloth",
        row_kind="demonstrations",
        rows=completion_rows,
        features=attempt_features("prompt", "completion"),
        choices=CHAT,
        note="Load the file, then call `train_on_responses_only(instruction_part, response_part)`, as Unsloth's guides "
        "do. For DPO and GRPO, use the TRL formats. " + MLX_LM,
    ),
]
