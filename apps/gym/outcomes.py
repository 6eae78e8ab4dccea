"""The vocabulary of outcomes: how an attempt ended, at which stage, and what its rollout may be used for.

An ended rollout has exactly one outcome (`find_outcome`): a stop reason, an error kind, `masked` or `cancelled`. The
tables at the end map the words of other programs to this vocabulary.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

StopReason = Literal[
    "answered",
    "environment_done",
    "max_steps",
    "max_output_tokens",
    "context_length",
    "content_filter",
    "time_limit",
    "token_limit",
    "empty_reply",
]
"""Why a completed attempt stopped."""

ErrorKind = Literal[
    "policy_error",
    "environment_error",
    "verifier_error",
    "verifier_timeout",
    "judge_error",
    "agent_error",
    "agent_lost",
    "timed_out",
    "worker_lost",
    "cancelled",
]
"""What failed in a failed attempt."""

STOP_REASONS: tuple[StopReason, ...] = get_args(StopReason)
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
MASKED = "masked"

Stage = Literal["model", "environment", "agent", "verifier", "worker", "user"]
"""Where the attempt ended: in the model or its limits, the session, the agent, the verification, the worker, or by a
user's request."""

Retried = Literal["no", "if transient", "yes"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which an attempt ends.

    `title` is a label and `sentence` says what happened. `retried` says whether the rollout returns to the queue while
    it has attempts left. `counts` is True if its reward counts in metrics. `trains` is True if exports and pairs use it
    by default.
    """

    name: str
    title: str
    sentence: str
    stage: Stage
    retried: Retried = "no"
    counts: bool = False
    trains: bool = False


def _completed(name: str, title: str, sentence: str, stage: Stage, *, trains: bool = False) -> Outcome:
    return Outcome(name=name, title=title, sentence=sentence, stage=stage, counts=True, trains=trains)


def _failed(name: str, title: str, sentence: str, stage: Stage, retried: Retried = "if transient") -> Outcome:
    return Outcome(name=name, title=title, sentence=sentence, stage=stage, retried=retried)


OUTCOMES: dict[str, Outcome] = {
    each.name: each
    for each in (
        _completed(
            "answered",
            "Answered",
            "The model replied without a call and the environment added nothing",
            "model",
            trains=True,
        ),
        _completed(
            "environment_done", "Environment done", "The environment ended the conversation", "environment", trains=True
        ),
        _completed("max_steps", "Turn limit", "It reached the agent's maximum number of turns", "agent"),
        _completed("max_output_tokens", "Reply cut", "A reply was cut at its token limit", "model"),
        _completed("context_length", "Context full", "The conversation was longer than the model's context", "model"),
        _completed("content_filter", "Content filter", "The provider's content filter stopped the reply", "model"),
        _completed("time_limit", "Time limit", "It reached the agent's time limit, checked between turns", "agent"),
        _completed("token_limit", "Token limit", "It reached the agent's token limit, checked between turns", "agent"),
        _completed("empty_reply", "Empty reply", "The model twice in a row returned neither text nor a call", "model"),
        _failed(
            "policy_error",
            "Policy model failed",
            "The policy model was unreachable, refused the request, or sent an invalid reply",
            "model",
        ),
        _failed(
            "environment_error",
            "Environment failed",
            "The resource server was unreachable, or broke its protocol",
            "environment",
        ),
        _failed("verifier_error", "Verifier failed", "The verifier failed, or returned no finite number", "verifier"),
        _failed(
            "verifier_timeout",
            "Verifier too slow",
            "A verifier that runs here did not end within its time limit",
            "verifier",
            "no",
        ),
        _failed(
            "judge_error",
            "Judge failed",
            "A judge model failed or contradicted itself, or the model of a simulated user failed",
            "verifier",
        ),
        _failed("agent_error", "Agent failed", "The agent reported a failure, or ended with an error", "agent"),
        _failed("agent_lost", "Agent lost", "The agent was silent for longer than its lease", "agent"),
        _failed(
            "timed_out",
            "Timed out",
            "A call or the rollout took longer than its time limit, before its reward was verified",
            "worker",
            "no",
        ),
        _failed("worker_lost", "Worker lost", "Three workers died while they ran this rollout", "worker", "yes"),
        _failed("cancelled", "Cancelled", "A user or another program cancelled it", "user", "no"),
        Outcome(
            name=MASKED,
            title="Masked",
            sentence="The verifier reported that its reward is no valid measurement, for example after a crash of the "
            "environment",
            stage="verifier",
        ),
    )
}
"""All outcomes by name, in the order of the documentation."""

ENDED_BY_ITSELF = frozenset(name for name in STOP_REASONS if OUTCOMES[name].trains)
"""Stop reasons of attempts that ended by themselves.

Every other stop reason is a cut. Cut attempts are verified and keep their reward, but they do not show how to end, and
a model trained on pairs of them would learn the length of the limit. Demonstrations and preference pairs therefore only
use attempts that ended by themselves.
"""

MAX_MASK = 64
"""Maximum characters of a stored reason for a mask."""


def find_outcome(*, status: str, stop_reason: str = "", error_kind: str = "", masked: str = "") -> Outcome | None:
    """Return the outcome of a rollout; None if it has not ended."""
    name = {"completed": MASKED if masked else stop_reason, "failed": error_kind, "cancelled": "cancelled"}.get(status)
    return OUTCOMES[name] if name else None


MASK_FIELDS = ("mask_sample", "failure_kind", "failure_reason")
"""Fields of a verdict by which it masks its attempt."""


def read_mask(verdict: Mapping[str, Any]) -> str:
    """Return why a verdict masks its attempt, or an empty string.

    The fields are from NeMo Gym 0.7 (`BaseVerifyResponse`): with `mask_sample`, the reward is no measurement of the
    model. `failure_kind` names the reason but masks nothing by itself. Older servers set `mask_sample` in
    `instance_config`.
    """
    if not verdict:  # most verdicts of the engine
        return ""
    config = verdict.get("instance_config")
    if not _is_set(verdict.get("mask_sample")) and not (
        isinstance(config, Mapping) and _is_set(config.get("mask_sample"))
    ):
        return ""
    kind = verdict.get("failure_kind")
    if not isinstance(kind, str):
        return MASKED
    return "".join(one for one in kind if one.isprintable())[:MAX_MASK].strip() or MASKED


def _is_set(value: object) -> bool:
    """Return the value of a Boolean field as NeMo Gym's models read it: they also accept words."""
    return value.strip().lower() in {"true", "t", "yes", "y", "on", "1"} if isinstance(value, str) else bool(value)


def mask_fields(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a verification must keep so that `read_mask` finds the mask; empty without a mask."""
    if not read_mask(verdict):
        return {}
    named = {name: verdict[name] for name in MASK_FIELDS if isinstance(verdict.get(name), str)}
    return {**named, "mask_sample": True}


NEMO_GYM_FAILURES: dict[str, ErrorKind] = {
    "transport_unreachable": "environment_error",
    "transport_peer_drop": "environment_error",
    "transport_timeout": "timed_out",
    "transport_local_resource": "environment_error",
    "agent_run_error": "agent_error",
    "agent_request_failed": "agent_error",
    "agent_timeout": "timed_out",
    "agent_command_not_allowed": "agent_error",
    "judge_failed": "judge_error",
    "judge_unparseable": "judge_error",
    "verifier_error": "verifier_error",
    "provider_unavailable": "environment_error",
    "provider_quota_exhausted": "environment_error",
    "provider_oom_killed": "environment_error",
    "session_lost": "environment_error",
    "session_expired": "environment_error",
    "session_release_failed": "environment_error",
    "cancelled": "cancelled",
    "kill_shaped": "worker_lost",
    "shutdown": "cancelled",
    "persistence_failed": "environment_error",
    "cohort_incomplete": "verifier_error",
    # Labels of failures files (`_ng_failure_class`) that are not among the shared names.
    "infrastructure_error": "environment_error",
    "harbor_failed": "agent_error",
    "permanent": "verifier_error",
    "judge_invalid": "judge_error",
    "timeout_exceeded": "timed_out",
    "skipped": "environment_error",
}
"""NeMo Gym 0.7's failure kinds (`nemo_gym/failure_kinds.py`)."""

NEMO_GYM_STAGES: dict[str, ErrorKind] = {
    "admission": "environment_error",
    "seed": "environment_error",
    "agent": "agent_error",
    "verification": "verifier_error",
    "cleanup": "environment_error",
}
"""NeMo Gym 0.7's stages, for failures whose kind is missing or unknown."""

_PARTS: tuple[tuple[str, ErrorKind], ...] = (
    ("judge", "judge_error"),
    ("verif", "verifier_error"),
    ("timeout", "timed_out"),
    ("timed_out", "timed_out"),
    ("cancel", "cancelled"),
    ("model", "policy_error"),
    ("policy", "policy_error"),
)


def read_nemo_gym_failure(kind: str, stage: str = "") -> ErrorKind:
    """Return the error kind of a NeMo Gym failure. Servers may use names of their own, for example `server:oom`."""
    if known := NEMO_GYM_FAILURES.get(kind) or NEMO_GYM_STAGES.get(stage):
        return known
    return next((found for part, found in _PARTS if part in kind.lower()), "environment_error")


VERIFIERS_STOPS: dict[str, StopReason] = {
    "max_turns_reached": "max_steps",
    "prompt_too_long": "context_length",
    "max_total_completion_tokens_reached": "token_limit",
    "timeout_reached": "time_limit",
    "has_final_env_response": "environment_done",
    # Stop conditions of episodes.
    "max_turns": "max_steps",
    "max_input_tokens": "token_limit",
    "max_output_tokens": "token_limit",
    "max_total_tokens": "token_limit",
    "context_length": "context_length",
}
"""Stop conditions of verifiers' results and episodes."""
