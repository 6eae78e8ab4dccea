"""Bodies and replies of a resource server's `/verify`: encode the former, turn the latter into rewards."""

from collections.abc import Callable
from typing import Any

import orjson

from apps.gym.errors import AgentFailed, EnvironmentFault, GymError, JudgeError, TimedOut, VerifierError
from apps.gym.outcomes import NEMO_GYM_FAILURES, NEMO_GYM_STAGES, ErrorKind, mask_fields
from apps.gym.redaction.shortening import cut, shorten
from apps.gym.rewards import Reward
from apps.gym.storable import is_number
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import DETAILS, is_of_attempt
from apps.gym.traces.items import TaskRow

_MAX_DETAIL = 20_000
_MAX_DETAILS = 64_000
_MOST_COMPONENTS = 200
_LONGEST_NAME = 200


_ERRORS: dict[ErrorKind, type[GymError]] = {
    error.kind: error for error in (AgentFailed, EnvironmentFault, JudgeError, TimedOut, VerifierError)
}
"""Errors of the failure classes that a verifier may report."""


def error_class(kind: str, default: type[GymError]) -> type[GymError]:
    """Return the error of a kind that a server reports, or `default` for kinds that only GymWeb finds."""
    return next((error for known, error in _ERRORS.items() if known == kind), default)


def parse_object(body: bytes, told: str, kind: type[GymError], read: Callable[[bytes], Any] = orjson.loads) -> Any:
    """Return the JSON object of a reply. Raises an error of `kind`; `told` names the reply."""
    try:
        given = read(body)
    except (ValueError, RecursionError) as error:
        raise kind(f"{told} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise kind(f"{told} is not an object")
    return given


def read_reward(reply: bytes, row: TaskRow, *, source: str) -> Reward:
    """Return the reward in a reply of `/verify`.

    Raises VerifierError if there is none, and the error of the failure class that the server reports: such a reply has
    reward 0.0, which is not a score.
    """
    verdict = parse_object(reply, f"{source}: the reply of /verify", VerifierError)
    failure = verdict.get("_ng_failure_class")
    if failure:
        stage = str(verdict.get("_ng_failure_stage") or "")
        reasons = ("_ng_failure_judge_error", "failure_reason", "_ng_failure_message")
        told = next((str(verdict[name]) for name in reasons if verdict.get(name)), "no reason given")
        known = NEMO_GYM_FAILURES.get(str(failure)) or NEMO_GYM_STAGES.get(stage, "verifier_error")
        where = f"{failure}, stage {stage}" if stage else failure
        raise error_class(known, VerifierError)(f"{source}: the verifier failed ({where}): {_shorten(told)}")
    if verdict.get("verification_skipped") is True:
        raise VerifierError(f"{source}: the reply has a placeholder instead of a reward, because verification is off")
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
        details={**_details(verdict, row), **keep_small(mask_fields(verdict))},
    )


def judge_failure(error: JudgeError) -> dict[str, Any]:
    """Return the fields of a reply of `/verify` whose judge failed, as NeMo Gym's servers send them."""
    told = {"failure_kind": "judge_failed", "failure_reason": str(error)}
    failed = {"_ng_failure_class": "judge_failed", "_ng_failure_judge_error": str(error)}
    return {"reward": 0.0, "mask_sample": True, **told, **failed}


def _details(verdict: dict[str, Any], row: TaskRow) -> dict[str, Any]:
    """Return the verifier fields besides the reward.

    Echoes of the task are dropped, except the expected answer. GymWeb's own servers list new fields.
    """
    named = verdict.get(DETAILS)
    if isinstance(named, list):
        return keep_small({key: verdict[key] for key in named if isinstance(key, str) and key in verdict})
    news = {
        key: value
        for key, value in verdict.items()
        if key != PARAMS
        and not is_of_attempt(key)
        and not (key in row and row[key] == value and key != "expected_answer")
    }
    return keep_small(news)


def keep_small(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values, with a note of the size for each value too large for a trace."""
    details: dict[str, Any] = {}
    room = _MAX_DETAILS
    for key, value in given.items():
        try:
            size = len(orjson.dumps(value))
        except TypeError:
            # Nested too deeply to encode.
            details[key] = "left out: it cannot be written as JSON"
            continue
        if size > _MAX_DETAIL or size > room:
            value = f"left out: {size:,} bytes"  # noqa: PLW2901 - the note stands in for the value
        else:
            room -= size
        details[key] = value
    return details


def _storable(text: str) -> str:
    """Return the text without NUL characters, which databases cannot store."""
    return text.replace("\0", "�")


def _shorten(text: str) -> str:
    return text if len(text) <= 4000 else f"{shorten(text, 4000)} ({len(text):,} characters)"
