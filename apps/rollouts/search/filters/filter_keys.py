"""The filter keys and the type of their values. Pure data; `filter_sql` compiles it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from apps.gym.outcomes import ERROR_KINDS, STOP_REASONS
from apps.gym.setup_notices import NOTICES, OF_ROLLOUTS

STATUSES = ("queued", "running", "completed", "failed", "cancelled")
FLAGS = {
    "truncated": "ended at a limit",
    "tool_error": "at least one tool error",
    "redacted": "credentials were redacted",
    "credentials": "redactions not reviewed",
    "no_usage": "some replies have no token counts",
    "retried": "more than one attempt",
    "lost": "its worker was lost at least once",
    "unscored": "completed without a reward",
    "masked": "masked by the verifier",
    "ambiguous": "ambiguous main path",
    "unsolved": "failed, or reward below the solve threshold",
}


class Kind(StrEnum):
    NUMBER = "number"  # any number: >0.5, 0.2..0.8, 1
    COUNT = "count"  # a whole number, with the same signs
    CHOICE = "choice"  # one of the known values
    NAME = "name"  # a name; * is a wildcard
    EXACT = "exact"  # an exact name
    REFERENCE = "reference"  # an id, for example #12, or a name
    WORDS = "words"  # words in order, as a phrase
    ANSWER = "answer"  # the number of a scan, and perhaps a sign with an answer: 3, 3=yes, 3>=2


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    about: str
    example: str
    choices: tuple[str, ...] = ()
    may_be_missing: bool = False
    """True if `key:*` selects rollouts with any value."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Explanations of the choices."""


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key("text", Kind.WORDS, "phrase in the trace", 'text:"cannot find"'),
        Key("reward", Kind.NUMBER, "reward", "reward:>0.5", may_be_missing=True),
        Key("status", Kind.CHOICE, "status", "status:failed", STATUSES),
        Key("stop", Kind.CHOICE, "stop reason", "stop:max_steps", STOP_REASONS, may_be_missing=True),
        Key(
            "error", Kind.CHOICE, "error kind of a failed rollout", "error:timed_out", ERROR_KINDS, may_be_missing=True
        ),
        Key(
            "flag",
            Kind.CHOICE,
            "property of the rollout, not a flag set by a user",
            "flag:truncated",
            tuple(FLAGS),
            meanings=FLAGS,
        ),
        Key(
            "notice",
            Kind.CHOICE,
            "set-up notice",
            "notice:text_calls",
            OF_ROLLOUTS,
            may_be_missing=True,
            meanings={name: NOTICES[name].title for name in OF_ROLLOUTS},
        ),
        Key("steps", Kind.COUNT, "turns: replies of the policy model", "steps:<10"),
        Key("calls", Kind.COUNT, "tool calls", "calls:0"),
        Key("tool_errors", Kind.COUNT, "tool calls that failed", "tool_errors:>=2"),
        Key("tokens", Kind.COUNT, "input and output tokens", "tokens:>10k"),
        Key("input", Kind.COUNT, "input tokens", "input:>8k"),
        Key("output", Kind.COUNT, "output tokens", "output:>1k"),
        Key("sampled", Kind.COUNT, "captured tokens that the model sampled", "sampled:>0"),
        Key("trainable", Kind.COUNT, "captured tokens that may be trained on", "trainable:0"),
        Key("seconds", Kind.NUMBER, "duration of the attempt", "seconds:>60"),
        Key("cost", Kind.NUMBER, "cost in US dollars", "cost:>0.01"),
        Key("attempt", Kind.COUNT, "attempt number", "attempt:>1"),
        Key("tool", Kind.EXACT, "name of a called tool", "tool:search", may_be_missing=True),
        Key("model", Kind.NAME, "slug of the policy model", "model:qwen*"),
        Key("version", Kind.NAME, "version of the policy model", "version:step-200", may_be_missing=True),
        Key("agent", Kind.NAME, "slug of the agent", "agent:react*"),
        Key("environment", Kind.NAME, "slug of the environment", "environment:calculator"),
        Key("dataset", Kind.NAME, "slug of the dataset", "dataset:sums"),
        Key("collection", Kind.REFERENCE, "number or name of the collection", "collection:12"),
        Key("task", Kind.REFERENCE, "number or id of the task", "task:340"),
        Key("split", Kind.EXACT, "split of the task", "split:train", may_be_missing=True),
        Key("tag", Kind.EXACT, "tag of the task", "tag:algebra", may_be_missing=True),
        Key(
            "cause",
            Kind.COUNT,
            "ID of a failure cause, as in the links of the page Failures and low rewards",
            "cause:12",
        ),
        Key("scan", Kind.ANSWER, "answer in a scan; scan:3 matches all rollouts of scan 3", "scan:3=yes"),
        Key("worker", Kind.COUNT, "number of the worker that runs the rollout", "worker:3"),
        Key("id", Kind.COUNT, "rollout number", "id:>1200"),
    )
}
ALIASES = {
    "turns": "steps",
    "stop_reason": "stop",
    "error_kind": "error",
    "duration": "seconds",
    "tool_calls": "calls",
    "policy_model": "model",
    "env": "environment",
    "flags": "flag",
    "notices": "notice",
    "tags": "tag",
    "tools": "tool",
    "input_tokens": "input",
    "output_tokens": "output",
    "model_version": "version",
}
"""Aliases of keys, for example the column names of the API."""
