"""What travels to and from a resource server's `/verify`: bodies that always encode, replies that become rewards."""

import json
import math
from typing import Any, TypeGuard

import orjson

from apps.gym.errors import JudgeError, VerifierError
from apps.gym.redaction.shortening import cut, shorten
from apps.gym.rewards import Reward
from apps.gym.tasks.rollout_keys import DETAILS
from apps.gym.traces.items import TaskRow

_ECHOED = frozenset({"reward", "reward_components", "explanation", "responses_create_params", "response"})
_MAX_DETAIL = 20_000
_MAX_DETAILS = 64_000
_MOST_COMPONENTS = 200
_LONGEST_NAME = 200


def encode_body(body: dict[str, Any]) -> bytes:
    """JSON of a body. A policy model may write whole numbers of more than 64 bits, or half a surrogate pair."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()


def read_reward(reply: bytes, row: TaskRow, *, source: str) -> Reward:
    """The reward in a reply of `/verify`.

    Raises VerifierError when there is none, and JudgeError when the server says that its judge failed: such a reply
    carries reward 0.0, which is no score.
    """
    verdict = _parse(reply, source)
    failure = verdict.get("_ng_failure_class")
    if failure:
        told = verdict.get("_ng_failure_judge_error") or verdict.get("failure_reason") or "no reason given"
        error = JudgeError if failure == "judge_failed" else VerifierError
        raise error(f"{source}: the verifier failed ({failure}): {_shorten(str(told))}")
    value = verdict.get("reward")
    if not is_number(value):
        raise VerifierError(f"{source}: the reply of /verify has no finite number as `reward`: {_shorten(repr(value))}")
    components = verdict.get("reward_components")
    components = components if isinstance(components, dict) else {}
    if len(components) > _MOST_COMPONENTS:
        told = f"the reply of /verify has {len(components):,} reward_components; at most {_MOST_COMPONENTS} are kept"
        raise VerifierError(f"{source}: {told}")
    explanation = verdict.get("explanation")
    return Reward(
        value=float(value),
        components={
            cut(_storable(name), _LONGEST_NAME): float(part)
            for name, part in components.items()
            if isinstance(part, bool) or is_number(part)
        },
        explanation=_shorten(_storable(explanation)) if isinstance(explanation, str) else "",
        details=_details(verdict, row),
    )


def _parse(reply: bytes, source: str) -> dict[str, Any]:
    try:
        verdict = orjson.loads(reply)
    except orjson.JSONDecodeError as error:
        raise VerifierError(f"{source}: the reply of /verify is not JSON: {error}") from None
    if not isinstance(verdict, dict):
        raise VerifierError(f"{source}: the reply of /verify is not an object")
    return verdict


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _details(verdict: dict[str, Any], row: TaskRow) -> dict[str, Any]:
    """What the verifier says beyond the reward. Echoes of the task stay out, but for the expected answer. Servers of
    ours name what is news."""
    named = verdict.get(DETAILS)
    if isinstance(named, list):
        return keep_small({key: verdict[key] for key in named if isinstance(key, str) and key in verdict})
    news = {
        key: value
        for key, value in verdict.items()
        if key not in _ECHOED and not (key in row and row[key] == value and key != "expected_answer")
    }
    return keep_small(news)


def keep_small(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, and in place of each value too large for a trace a note of its size."""
    details: dict[str, Any] = {}
    room = _MAX_DETAILS
    for key, value in given.items():
        try:
            size = len(orjson.dumps(value))
        except TypeError:
            # Nested deeper than anything reads it again.
            details[key] = "left out: it cannot be written as JSON"
            continue
        if size > _MAX_DETAIL or size > room:
            value = f"left out: {size:,} bytes"  # noqa: PLW2901 - the note stands in for the value
        else:
            room -= size
        details[key] = value
    return details


def _storable(text: str) -> str:
    """Without zero bytes, which no database keeps in a text."""
    return text.replace("\0", "�")


def _shorten(text: str) -> str:
    return text if len(text) <= 4000 else f"{shorten(text, 4000)} ({len(text):,} characters)"
