"""The columns beside the messages: tools, and where a row comes from.

They must not be null, nor be called id, source, model, system_prompt, type, message, payload or task_name: `datasets`
takes some of those sets of columns for agent traces, and NeMo RL uses the last one itself.
"""

import json
import math

from apps.gym.exporters.protocol import Attempt, Feature, Options, Preference, Row
from apps.gym.exporters.training_conversations import Conversation


def tools_column(conversation: Conversation, options: Options) -> Row:
    """No column where the tools stand elsewhere. A conversation without tools has an empty list: never null."""
    if options.tools == "column":
        return {"tools": conversation.tools}
    if options.tools == "text":
        return {"tools": as_text(conversation.tools)}
    return {}


def tools_feature(options: Options) -> dict[str, Feature]:
    if options.tools == "column":
        return {"tools": "json[]"}
    return {"tools": "string"} if options.tools == "text" else {}


def as_text(value: object) -> str:
    """JSON as the trainers' own tools write it."""
    return json.dumps(value, ensure_ascii=False)


ATTEMPT_FEATURES: dict[str, Feature] = {
    "reward": "float64",
    "rollout_id": "int64",
    "collection_id": "int64",
    "dataset": "string",
    "task_id": "int64",
    "task_index": "int64",
}
"""Columns of single attempts; `reward` is a float always: a file whose first reward is `1` fails to load when a later
one is 0.5."""

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
"""No `margin`: TRL's RewardTrainer subtracts a column of this name in its loss, unasked. A row without one stops it, or
of Parquet (NaN) makes its loss NaN in silence; and a margin of people's verdicts nobody has measured."""


def attempt_columns(attempt: Attempt) -> Row:
    return {"reward": float(attempt.reward), **attempt.columns}


def pair_columns(pair: Preference) -> Row:
    """What people paired has no margin, and may have no reward (NaN): then the row has no such column, since JSON would
    hold a null."""
    rewards = {"chosen_reward": float(pair.chosen.reward), "rejected_reward": float(pair.rejected.reward)}
    known = {name: reward for name, reward in rewards.items() if math.isfinite(reward)}
    return {**known, **margin_column("reward_margin", pair), **pair.columns}


def margin_column(name: str, pair: Preference) -> Row:
    return {} if pair.margin is None else {name: float(pair.margin)}
