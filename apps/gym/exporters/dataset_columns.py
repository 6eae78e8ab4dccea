"""Columns beside the messages: the tools, and the origin of a row.

They must not be null, nor be called id, source, model, system_prompt, type, message, payload or task_name. `datasets`
interprets some of those sets of columns as agent traces, and NeMo RL uses the last one itself.
"""

import json
import math

from apps.gym.exporters.protocol import Attempt, Feature, Options, Preference, Row
from apps.gym.exporters.training_conversations import Conversation


def tools_column(conversation: Conversation, options: Options) -> Row:
    """Return the `tools` column, or no column if the tools are written elsewhere.

    Without tools it is an empty list, never null.
    """
    if options.tools == "column":
        return {"tools": conversation.tools}
    if options.tools == "text":
        return {"tools": as_text(conversation.tools)}
    return {}


def tools_feature(options: Options) -> dict[str, Feature]:
    if options.tools == "column":
        return {"tools": "json[]"}
    return {"tools": "string"} if options.tools == "text" else {}


def image_feature(options: Options) -> dict[str, Feature]:
    return {"images": "image[]"} if options.images == "column" else {}


def as_text(value: object) -> str:
    """Return JSON as the trainers' own tools write it."""
    return json.dumps(value, ensure_ascii=False)


ATTEMPT_FEATURES: dict[str, Feature] = {
    "reward": "float64",
    "rollout_id": "int64",
    "collection_id": "int64",
    "dataset": "string",
    "task_id": "int64",
    "task_index": "int64",
}
"""Columns of single attempts.

`reward` is always a float: a file whose first reward is `1` fails to load when a later one is 0.5.
"""

PAIR_FEATURES: dict[str, Feature] = {
    "chosen_reward": "float64",
    "rejected_reward": "float64",
    "reward_margin": "float64",
    "pair_id": "int64",
    "pair_source": "string",
    "pair_strength": "int64",
    "pair_reviewers": "int64",
    "pair_agreeing": "int64",
    "pair_adjudicated": "bool",
    "chosen_length": "int64",
    "rejected_length": "int64",
    "chosen_rollout_id": "int64",
    "rejected_rollout_id": "int64",
    "collection_id": "int64",
    "dataset": "string",
    "task_id": "int64",
    "task_index": "int64",
}
"""Columns of pairs.

There is no `margin` column, because TRL's RewardTrainer subtracts it in its loss.

A row without it would stop training, or with Parquet (NaN) silently make the loss NaN; and verdicts have no margin.
"""


def attempt_columns(attempt: Attempt) -> Row:
    return {"reward": float(attempt.reward), **attempt.columns}


def pair_columns(pair: Preference) -> Row:
    """Return the columns of a pair.

    A pair made by people has no margin, and may have no reward (NaN); those columns are then left out, because JSON
    would hold a null.
    """
    rewards = {"chosen_reward": float(pair.chosen.reward), "rejected_reward": float(pair.rejected.reward)}
    known = {name: reward for name, reward in rewards.items() if math.isfinite(reward)}
    return {**known, **margin_column("reward_margin", pair), **pair.columns}


def margin_column(name: str, pair: Preference) -> Row:
    return {} if pair.margin is None else {name: float(pair.margin)}
