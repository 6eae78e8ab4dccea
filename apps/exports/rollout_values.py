"""Values of exported rollouts that follow from their columns and events."""

from typing import Any

from apps.exports.export_selection import Candidate
from apps.gym.exporters.protocol import Attempt
from apps.gym.traces.courses import completion_fingerprint
from apps.gym.traces.events import ModelCall, TraceUnion, Verification
from apps.gym.traces.graph import main_line
from apps.reviews.reviews.reward_overrides import ActiveOverride


def reward_of(rollout: Candidate, events: list[TraceUnion]) -> float:
    """Return the reward of the row: of a masked rollout, the one that its verifier reported."""
    if rollout.reward is not None:
        return rollout.reward
    verified = (event.reward for event in reversed(events) if isinstance(event, Verification))
    return next((reward for reward in verified if reward is not None), 0.0)


def is_masked(attempt: Attempt) -> bool:
    verified = [event for event in attempt.events if isinstance(event, Verification)]
    return bool(verified and verified[-1].masked)


def fingerprint_of(events: list[TraceUnion]) -> str:
    """Return a hash of the main path, or an empty text without a trace. Empty texts are not duplicates."""
    return completion_fingerprint(main_line(events)) if events else ""


def has_tokens(attempt: Attempt) -> bool:
    return any(isinstance(event, ModelCall) and event.tokens for event in attempt.events)


def override_columns(override: ActiveOverride | None) -> dict[str, Any]:
    """Return the columns of the override. Nulls are left out: Arrow and trainers would infer a wrong type from them."""
    if override is None:
        return {}
    original = {} if override.original_reward is None else {"original_reward": override.original_reward}
    return {"reward": override.reward, **original, "reason": override.reason}
