"""Try a verifier on one reply: what it would give, before anything is collected with it."""

import time
from typing import Any

import msgspec
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import message
from apps.gym.verifiers.registry import asks_judge, find_problems, read_verifier
from apps.gym.verifiers.verification import verify_attempt

MOST_SECONDS = 10.0
MAX_REPLY = 200_000


class VerifierTrial(msgspec.Struct, frozen=True, kw_only=True):
    """`reward` or the `error` that a rollout would end with; `seconds` is what it took."""

    reward: Reward | None = None
    error: str = ""
    seconds: float = 0.0


def try_verifier(
    *, verifier: object, row: dict[str, Any], reply: str, output: list[Any] | None = None
) -> VerifierTrial:
    """`output` are the items of an attempt, `reply` is its only message where there are none.

    Raises ValidationError for parameters that are no verifier's. A judge is not asked: that costs tokens.
    """
    if problems := describe_problems(verifier):
        raise ValidationError({"verifier": problems})
    if asks_judge(verifier):
        raise ValidationError({"verifier": ["A judge model is asked only in a collection: try the other components."]})
    if len(reply) > MAX_REPLY:
        raise ValidationError({"reply": [f"Give at most {MAX_REPLY:,} characters."]})
    response = {"output": [message("assistant", reply)] if output is None else output}
    given = {"responses_create_params": {"input": ""}, **row}
    began = time.perf_counter()
    try:
        reward = async_to_sync(verify_attempt)(read_verifier(verifier), given, response, most_seconds=MOST_SECONDS)
    except VerifierError as failure:
        return VerifierTrial(error=str(failure), seconds=time.perf_counter() - began)
    return VerifierTrial(reward=reward, seconds=time.perf_counter() - began)


def describe_problems(verifier: object) -> list[ValidationError]:
    """A sentence for each, which begins with its JSON pointer; `params` has that pointer too."""
    return [
        ValidationError("%(told)s", params={"told": f"{at or 'The verifier'} {problem}.", "pointer": at})
        for at, problem in find_problems(verifier)
    ]
