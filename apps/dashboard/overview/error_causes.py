"""Descriptions of error kinds, with their most frequent messages."""

from collections import Counter
from dataclasses import dataclass

from apps.rollouts.models import Collection

CAUSES = {
    "policy_error": "The policy model was unreachable, refused the request or sent no reply",
    "environment_error": "The resource server was unreachable or broke the protocol",
    "verifier_error": "The verifier failed or gave no reward",
    "judge_error": "The judge model failed",
    "timed_out": "A call or the whole attempt timed out",
    "worker_lost": "Its worker crashed three times",
    "cancelled": "Cancelled",
}

_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """An error kind, its number of rollouts, and the most frequent message of the newest ones."""

    kind: str
    count: int
    message: str
    others: bool
    """True if there are other messages."""


def say_why(collection: Collection, errors: dict[str, int]) -> list[Failure]:
    """Return the failures, most frequent first, with one query per kind."""
    return [
        Failure(kind, count, *_mostly_said(collection, kind))
        for kind, count in sorted(errors.items(), key=lambda each: (-each[1], each[0]))
    ]


def _mostly_said(collection: Collection, kind: str) -> tuple[str, bool]:
    failed = collection.rollouts.filter(error_kind=kind).order_by("-id")
    said = Counter(failed.values_list("error_message", flat=True)[:_LOOKED_AT])
    return (said.most_common(1)[0][0], len(said) > 1) if said else ("", False)
