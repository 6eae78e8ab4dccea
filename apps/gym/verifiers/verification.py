"""Verify an attempt with a configured verifier, on the event loop if it is quick, else in a separate process."""

import asyncio
from typing import Any

from apps.gym.errors import GymError, JudgeError, VerifierError, VerifierTooSlow
from apps.gym.judging.judge import Judgement
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, text_of
from apps.gym.verifiers.hybrid import Hybrid
from apps.gym.verifiers.processes.process_pool import shared_pool
from apps.gym.verifiers.protocol import AnswerVerifier, JudgedVerifier, Verifier

MAX_ON_LOOP = 100_000
"""Maximum characters of an attempt that a quick verifier reads on the event loop, which takes milliseconds."""
_PER_ITEM = 200
"""Weight of each item besides its text, because some verifiers compare every call with every expected one."""


async def verify_attempt(
    verifier: Verifier,
    row: TaskRow,
    response: dict[str, Any],
    *,
    judgement: Judgement | None = None,
    most_seconds: float = 600.0,
    whose: str = "",
) -> Reward:
    """Return the reward.

    Raises VerifierError (never another error) if a verifier has a bug or hangs, so that this never counts as 0.

    `judgement` asks the judge. `most_seconds` limits verifiers in separate processes. `whose` names the environment,
    because environments take turns.
    """
    try:
        if isinstance(verifier, Hybrid):
            return await _verify_parts(verifier, row, response, judgement, most_seconds, whose=whose)
        if isinstance(verifier, JudgedVerifier):
            if judgement is None:
                raise JudgeError(f"{verifier.title}: no judge model is set for this environment").permanent()
            return await verifier.judge(row, response, judgement)
        if verifier.runs_on_loop(row) and weigh(response) <= MAX_ON_LOOP:
            return verifier.verify(row, response)
        seconds = min(verifier.max_seconds, most_seconds)
        return await shared_pool().verify(verifier, row, response, seconds=seconds, whose=whose)
    except VerifierTooSlow as stopped:
        if isinstance(verifier, AnswerVerifier) and verifier.too_slow == "wrong":
            return Reward(value=0.0, components={verifier.component: 0.0}, explanation=f"{stopped}; counted as wrong")
        raise
    except GymError:
        raise
    except Exception as bug:
        raise VerifierError(f"{verifier.title}: {type(bug).__name__}: {bug}").permanent() from bug


def weigh(response: dict[str, Any]) -> int:
    """Return about how many characters a verifier has to read."""
    size = 0
    for item in response.get("output") or []:
        if isinstance(item, dict):
            size += _PER_ITEM
            for text in (text_of(item), item.get("arguments"), item.get("output")):
                if isinstance(text, str):
                    size += len(text)
    return size


async def _verify_parts(
    hybrid: Hybrid,
    row: TaskRow,
    response: dict[str, Any],
    judgement: Judgement | None,
    most_seconds: float,
    *,
    whose: str,
) -> Reward:
    """Verify all parts concurrently. If a part fails, its error is raised after all have ended."""
    parts = hybrid.parts
    found = await asyncio.gather(
        *(
            verify_attempt(part, row, response, judgement=judgement, most_seconds=most_seconds, whose=whose)
            for part in parts.values()
        ),
        return_exceptions=True,
    )
    rewards: dict[str, Reward] = {}
    for name, reward in zip(parts, found, strict=True):
        if isinstance(reward, BaseException):
            raise reward
        rewards[name] = reward
    return hybrid.combine_rewards(rewards)
