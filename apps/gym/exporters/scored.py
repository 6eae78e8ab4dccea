"""Scored rollouts as an archive: every attempt with its group's statistics, advantage, and captured tokens.

No trainer reads scored rollouts offline today; this format is for custom trainers and for analysis. Advantages are
(reward − mean) / (std + 1e-4) of the group, as in GRPO, and reward − mean, as in Dr. GRPO; `std` is that of the
population. A group whose rewards differ by less than 1e-4 has zero variance: its attempts teach nothing. A
rollout counts once in its group, however many segments it has; `weight` is 1 divided by their number.

A group is all attempts at a task with a reward, whichever rows are written. To keep every attempt, arguments are the
original text, including malformed ones, and empty turns are kept.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

import msgspec

from apps.gym.exporters.captured_rows import SAMPLING_FEATURES, TOKEN_CHOICES, join_attempt, sampling_columns
from apps.gym.exporters.dataset_columns import ATTEMPT_FEATURES, as_text, attempt_columns
from apps.gym.exporters.protocol import SPREAD, Attempt, Feature, Format, Group, Options, Row
from apps.gym.exporters.training_conversations import attempt_conversation
from apps.gym.traces.events import ModelCall
from apps.gym.traces.segments import Sampled, Segment, count_captured_replies

_FIGURES: dict[str, Feature] = {
    "components": "json",
    "reward_override": "json",
    "stop_reason": "string",
    "model_version": "string",
    "repeat": "int64",
    "group_size": "int64",
    "group_mean": "float64",
    "group_std": "float64",
    "pass_rate": "float64",
    "zero_variance": "bool",
    "advantage": "float64",
    "advantage_mean_only": "float64",
}
_TOKENS: dict[str, Feature] = {
    "segment": "int64",
    "segments": "int64",
    "input_ids": "int32[]",
    "loss_mask": "int32[]",
    "logprobs": "float32[]",
    "sampled": "json[]",
    "calls": "int64",
    "captured_calls": "int64",
}


def scored_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield one row for each segment of captured tokens, or one row with empty lists if none were captured."""
    whole = attempt_conversation(attempt, options, silent_turns=True, loss="marked")
    segments: Sequence[tuple[Segment | None, list[Sampled]]] = join_attempt(attempt, options)
    reward = attempt.reward
    common = {
        "prompt": whole.prompt,
        "completion": whole.completion,
        "tools": as_text(whole.tools),
        "components": {name: float(value) for name, value in attempt.components.items()},
        "reward_override": attempt.override,
        "stop_reason": attempt.stop_reason,
        "repeat": attempt.repeat,
        **group_figures(reward, attempt.group),
        **attempt_columns(attempt),
        **dict(zip(("calls", "captured_calls"), count_captured_replies(attempt.events), strict=True)),
    }
    versions = [event.version for event in attempt.events if isinstance(event, ModelCall)]
    for number, (segment, sampled) in enumerate(segments or [(None, [])]):
        # Each version once, in the order of the replies.
        used = dict.fromkeys(filter(None, [one.version for one in sampled] or versions))
        yield {
            **common,
            "model_version": ", ".join(used) or attempt.model_version,
            "segment": number,
            "segments": len(segments),
            **_tokens(segment),
            **sampling_columns(attempt, sampled),
            "sampled": msgspec.to_builtins(sampled),
        }


def measure_group(rewards: Sequence[float]) -> Group | None:
    """Return the statistics of the rewards of a group, each of one rollout; None without a reward."""
    if not rewards:
        return None
    return Group(
        size=len(rewards),
        mean=fmean(rewards),
        std=pstdev(rewards),
        lowest=min(rewards),
        highest=max(rewards),
        solved=sum(reward >= 1.0 for reward in rewards),
    )


def group_figures(reward: float, known: Group | None) -> Row:
    """Return the statistics of a group and the advantages of one of its attempts. Without a group, it is alone."""
    group = known or Group(size=1, mean=reward, std=0.0, lowest=reward, highest=reward, solved=int(reward >= 1.0))
    return {
        "group_size": group.size,
        "group_mean": group.mean,
        "group_std": group.std,
        "pass_rate": group.solved / group.size,
        "zero_variance": group.zero_variance,
        "advantage": 0.0 if group.zero_variance else (reward - group.mean) / (group.std + SPREAD),
        "advantage_mean_only": 0.0 if group.zero_variance else reward - group.mean,
    }


def _tokens(segment: Segment | None) -> Row:
    if segment is None:
        return {"input_ids": [], "loss_mask": [], "logprobs": []}
    return {
        "input_ids": segment.input_ids.tolist(),
        "loss_mask": segment.mask.tolist(),
        "logprobs": segment.logprobs.tolist(),
    }


FORMATS = [
    Format(
        slug="scored_rollouts",
        title="Scored rollouts with groups and tokens",
        trainer="Any",
        row_kind="scored",
        rows=scored_rows,
        features=lambda _: {
            "prompt": "json[]",
            "completion": "json[]",
            "tools": "string",
            **_FIGURES,
            **_TOKENS,
            **SAMPLING_FEATURES,
            **ATTEMPT_FEATURES,
        },
        choices={
            "reasoning": ("field", "inline", "dropped"),
            "arguments": ("text", "object"),
            "malformed": ("text", "dropped"),
            "numbers": ("any", "exact"),
            "tools": ("text",),
            **TOKEN_CHOICES,
        },
        encodings=("parquet", "jsonl", "jsonl.gz"),
        note="`loss_mask` is 1 for the tokens to train on; all other tokens have logprob 0. `sampled` lists the call, "
        "model version and sampling of each token range. "
        "Group metrics and advantages include all rollouts with a reward, even if filters leave them out. Parquet "
        "needs about 7 bytes per token, JSON 18.",
    ),
]
