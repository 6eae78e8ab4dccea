"""What can be filtered by: each key with what its values are. Pure data; `filter_sql` compiles it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from apps.gym.errors import ErrorKind
from apps.gym.loop.agent_loop import StopReason

STATUSES = ("queued", "running", "completed", "failed", "cancelled")
STOP_REASONS: tuple[str, ...] = get_args(StopReason)
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)
FLAGS = {
    "truncated": "a limit cut the attempt",
    "tool_error": "a tool failed at least once",
    "redacted": "credentials were taken out of the trace",
    "credentials": "the same, and nobody has looked since",
    "no_usage": "some replies did not tell their tokens",
    "retried": "it took more than one attempt",
    "lost": "its worker was lost while it ran",
    "unscored": "it completed without a reward",
}


class Kind(StrEnum):
    NUMBER = "number"  # any number: >0.5, 0.2..0.8, 1
    COUNT = "count"  # a whole number, with the same signs
    CHOICE = "choice"  # one of those that are known
    NAME = "name"  # a name, in which * stands for anything
    EXACT = "exact"  # a name as it is
    REFERENCE = "reference"  # a number as people see it (#12), or a name
    WORDS = "words"  # words in their order, as a phrase


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    about: str
    example: str
    choices: tuple[str, ...] = ()
    may_be_missing: bool = False
    """Whether `key:*` asks for those that have any value."""


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key("text", Kind.WORDS, "words of the trace, in this order", 'text:"cannot find"'),
        Key("reward", Kind.NUMBER, "the reward", "reward:>0.5", may_be_missing=True),
        Key("status", Kind.CHOICE, "how far it is", "status:failed", STATUSES),
        Key("stop", Kind.CHOICE, "why the attempt ended", "stop:max_steps", STOP_REASONS, may_be_missing=True),
        Key("error", Kind.CHOICE, "what broke the attempt", "error:timed_out", ERROR_KINDS, may_be_missing=True),
        Key("flag", Kind.CHOICE, "what is special about it", "flag:truncated", tuple(FLAGS)),
        Key("steps", Kind.COUNT, "replies of the policy model", "steps:<10"),
        Key("calls", Kind.COUNT, "tool calls", "calls:0"),
        Key("tool_errors", Kind.COUNT, "tool calls that failed", "tool_errors:>=2"),
        Key("tokens", Kind.COUNT, "tokens read and written", "tokens:>10k"),
        Key("input", Kind.COUNT, "tokens read", "input:>8k"),
        Key("output", Kind.COUNT, "tokens written", "output:>1k"),
        Key("seconds", Kind.NUMBER, "how long the attempt took", "seconds:>60"),
        Key("cost", Kind.NUMBER, "US dollars", "cost:>0.01"),
        Key("attempt", Kind.COUNT, "which attempt it is", "attempt:>1"),
        Key("tool", Kind.EXACT, "a tool that it called", "tool:search", may_be_missing=True),
        Key("model", Kind.NAME, "short name of the policy model", "model:qwen*"),
        Key("version", Kind.NAME, "the policy model's version", "version:step-200", may_be_missing=True),
        Key("agent", Kind.NAME, "short name of the agent", "agent:react*"),
        Key("environment", Kind.NAME, "short name of the environment", "environment:calculator"),
        Key("dataset", Kind.NAME, "short name of the dataset", "dataset:sums"),
        Key("collection", Kind.REFERENCE, "number or name of the collection", "collection:12"),
        Key("task", Kind.REFERENCE, "number or own id of the task", "task:340"),
        Key("split", Kind.EXACT, "split of its task", "split:train", may_be_missing=True),
        Key("tag", Kind.EXACT, "tag of its task", "tag:algebra", may_be_missing=True),
        Key("worker", Kind.COUNT, "the worker that runs it now", "worker:3"),
        Key("id", Kind.COUNT, "its number", "id:>1200"),
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
    "tags": "tag",
    "tools": "tool",
    "input_tokens": "input",
    "output_tokens": "output",
    "model_version": "version",
}
"""Other words for the same, as the columns of the API call them."""
