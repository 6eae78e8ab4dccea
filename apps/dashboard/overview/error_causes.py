"""What an error kind means, in words for the reader of a page, and what is mostly said of it."""

from collections import Counter
from dataclasses import dataclass

from apps.rollouts.models import Collection

CAUSES = {
    "policy_error": "The policy model could not be reached, refused, or sent no reply",
    "environment_error": "The resource server could not be reached or broke its protocol",
    "verifier_error": "The verifier failed or gave no reward",
    "judge_error": "The judge model failed",
    "timed_out": "A call or the whole rollout ran out of time",
    "worker_lost": "Its worker was lost three times",
    "cancelled": "It was cancelled",
}

_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """A kind of error, how many rollouts it broke, and what is said most often of the newest of them."""

    kind: str
    count: int
    message: str
    others: bool
    """Other things are said, too."""


def say_why(collection: Collection, errors: dict[str, int]) -> list[Failure]:
    """The most frequent first. One quick query a kind."""
    return [
        Failure(kind, count, *_mostly_said(collection, kind))
        for kind, count in sorted(errors.items(), key=lambda each: (-each[1], each[0]))
    ]


def _mostly_said(collection: Collection, kind: str) -> tuple[str, bool]:
    failed = collection.rollouts.filter(error_kind=kind).order_by("-id")
    said = Counter(failed.values_list("error_message", flat=True)[:_LOOKED_AT])
    return (said.most_common(1)[0][0], len(said) > 1) if said else ("", False)
