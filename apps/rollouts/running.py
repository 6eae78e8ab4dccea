"""Run one claimed rollout: rows → gym objects → events, and one end, whatever happens."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from apps.gym.agent import Attempt, Harness
from apps.gym.errors import GymError
from apps.gym.events import ErrorRaised, ModelCall, ToolResult, TraceUnion, Verification
from apps.gym.items import TaskRow
from apps.gym.policy.protocol import Policy
from apps.gym.resources.protocol import ResourceServer
from apps.rollouts.claiming import Claim
from apps.rollouts.models import Rollout
from apps.rollouts.recording import End

logger = logging.getLogger(__name__)

MAX_MESSAGE = 2_000
"""Characters of an error message kept on the row; the trace has all of it."""
MAX_COUNT = 2**31 - 1


class Setting(msgspec.Struct, kw_only=True):
    """What all rollouts of a collection share: the connected policy model and resource server, harness and deadline."""

    policy_model_id: int
    environment_id: int
    policy: Policy
    server: ResourceServer
    harness: Harness
    rollout_timeout: float


class Tally:
    """Counts what the row shows of a trace, event by event."""

    def __init__(self) -> None:
        self.turns = self.tool_calls = self.tool_errors = self.input_tokens = self.output_tokens = 0
        self.verification: Verification | None = None

    def add(self, event: TraceUnion) -> None:
        if isinstance(event, ModelCall):
            self.turns += 1
            self.input_tokens += event.usage.get("input_tokens", 0)
            self.output_tokens += event.usage.get("output_tokens", 0)
        elif isinstance(event, ToolResult):
            self.tool_calls += 1
            self.tool_errors += bool(event.error)
        elif isinstance(event, Verification):
            self.verification = event


async def run_rollout(
    *, claim: Claim, row: TaskRow, setting: Setting, keep: Callable[[Claim, TraceUnion], None]
) -> End:
    """Attempt the task, handing every event to `keep` as it comes. Raises only CancelledError."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    tally = Tally()

    def elapsed() -> float:
        return loop.time() - began

    def add(event: TraceUnion) -> None:
        tally.add(event)
        keep(claim, event)

    attempt = Attempt(
        row=row,
        server=setting.server,
        policy=setting.policy,
        harness=setting.harness,
        seed=claim.seed,
        elapsed=elapsed,
        name=str(claim.rollout_id),
        deadline=began + setting.rollout_timeout,
    )
    try:
        async with asyncio.timeout(setting.rollout_timeout):
            async for event in attempt.events():
                add(event)
        return _end(claim, tally, elapsed())
    except GymError as failure:
        kind, message = failure.kind, str(failure) or type(failure).__name__
    except TimeoutError:
        kind, message = "timed_out", f"The rollout ran longer than its limit of {setting.rollout_timeout:g} s."
    except Exception as bug:
        # A bug of ours or of user code must end this rollout alone, never the worker; the log has where it stands.
        logger.exception("rollout %s broke", claim.rollout_id)
        kind, message = "environment_error", f"{type(bug).__name__}: {bug}"
    add(ErrorRaised(kind=kind, message=message, at=elapsed()))
    return _end(claim, tally, elapsed(), error_kind=kind, error_message=message)


def _end(claim: Claim, tally: Tally, duration: float, **failure: str) -> End:
    verified = tally.verification
    outcome: dict[str, Any]
    if failure or verified is None:
        message = _storable(failure["error_message"])[:MAX_MESSAGE]
        outcome = {"status": Rollout.Status.FAILED.value, "error_kind": failure["error_kind"], "error_message": message}
    else:
        outcome = {
            "status": Rollout.Status.COMPLETED.value,
            "reward": verified.reward,
            "components": {_storable(name): value for name, value in verified.components.items()},
            "stop_reason": verified.stop_reason,
        }
    return End(
        id=claim.rollout_id,
        lease=claim.lease,
        collection=claim.collection_id,
        attempt=claim.attempt,
        turns=_count(tally.turns),
        tool_calls=_count(tally.tool_calls),
        tool_errors=_count(tally.tool_errors),
        input_tokens=_count(tally.input_tokens),
        output_tokens=_count(tally.output_tokens),
        duration=duration,
        **outcome,
    )


def _count(number: int) -> int:
    """A count that the column takes, whatever the endpoint claimed."""
    return max(0, min(number, MAX_COUNT))


def _storable(text: str) -> str:
    """Text that every database takes: no NUL, no lone surrogate."""
    return text.replace("\0", "�").encode(errors="replace").decode()


def cancelled_end(claim: Claim) -> End:
    return End(
        id=claim.rollout_id,
        lease=claim.lease,
        collection=claim.collection_id,
        attempt=claim.attempt,
        status=Rollout.Status.CANCELLED.value,
    )


def failed_to_start(claim: Claim, problem: Exception) -> End:
    """The end of a rollout that could not be started, or that broke in a way `run_rollout` does not know."""
    return _end(
        claim, Tally(), 0.0, error_kind="environment_error", error_message=f"{type(problem).__name__}: {problem}"
    )
