"""Serve one agent: `/run` attempts and verifies a task, `/v1/responses` only attempts a prompt."""

import asyncio
import secrets
import time
import zlib
from typing import Any

from apps.gym.calls.time_limits import TimeLimit, working_time
from apps.gym.errors import JudgeError, TimedOut
from apps.gym.exporters.nemo_gym_rollouts import materialised_params
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ResourceServer
from apps.gym.resources.verify_bodies import judge_failure
from apps.gym.serving.aggregating import aggregate
from apps.gym.serving.served_request import (
    Answer,
    IncomingRequest,
    Served,
    greet,
    invalid,
    json_answer,
    read_object,
    read_params,
    read_row,
)
from apps.gym.serving.trajectories import TRAJECTORY, trajectory_of
from apps.gym.tasks.rollout_keys import OURS, with_details
from apps.gym.traces.events import TraceUnion, Verification
from apps.gym.traces.items import TaskRow
from apps.gym.traces.responses import assemble_response
from apps.gym.traces.tokens import restore_tokens
from apps.gym.wires.protocol import Policy

_OURS = frozenset({"reward", "response", "reward_components", "explanation", TRAJECTORY})


class ServedAgent(Served):
    """Serve up to `seats` concurrent attempts; others wait.

    Each attempt has `seconds`, including the wait. The same task index and rollout index give the same seed.
    """

    def __init__(
        self, *, name: str, harness: Harness, policy: Policy, server: ResourceServer, seats: int, seconds: float
    ) -> None:
        self.name = name
        self._harness = harness
        self._policy = policy
        self._server = server
        self._seats = asyncio.Semaphore(seats)
        self._seconds = seconds

        self.routes = {
            ("GET", ""): greet,
            ("POST", "run"): self._run,
            ("POST", "v1/responses"): self._respond,
            ("POST", "aggregate_metrics"): aggregate,
        }

    async def _run(self, incoming: IncomingRequest) -> Answer:
        row = {key: value for key, value in read_row(incoming.body).items() if key not in _OURS}
        try:
            events, params, response = await self._attempt(row, self._server)
        except JudgeError as error:
            failure = judge_failure(error)
            return json_answer({**row, **failure})
        verified = next(event for event in reversed(events) if isinstance(event, Verification))
        whole, echoed = with_details(row, verified.details)
        return json_answer(
            {
                **whole,
                TRAJECTORY: trajectory_of(events, row, ended=response["created_at"]),
                "responses_create_params": params,
                "response": response,
                **_scored(verified),
                OURS: {"stop_reason": verified.stop_reason, **echoed},
            }
        )

    async def _respond(self, incoming: IncomingRequest) -> Answer:
        params = read_params(read_object(incoming.body), ["body"])
        if params.get("stream"):
            raise invalid("value_error", ["body", "stream"], "stream is not supported")
        _, _, response = await self._attempt({"responses_create_params": params}, UnverifiedServer(self._server))
        return json_answer(response)

    async def _attempt(
        self, row: TaskRow, server: ResourceServer
    ) -> tuple[list[TraceUnion], dict[str, Any], dict[str, Any]]:
        """Return the events as stored, the request as sent, and the response with its tokens. Raise GymError."""
        try:
            with TimeLimit(self._seconds):
                async with self._seats:
                    began = working_time()
                    attempt = Attempt(
                        row=row,
                        server=server,
                        policy=self._policy,
                        harness=self._harness,
                        seed=_seed_of(row),
                        elapsed=lambda: working_time() - began,
                        name=secrets.token_hex(8),
                    )
                    events = [event async for event in attempt.events()]
        except TimeoutError:
            raise TimedOut(f"{self.name}: the attempt took longer than {self._seconds:g} s") from None
        restored = restore_tokens(events)
        # The request has the tools of the first call. Later calls may have others.
        params = materialised_params(events[:3], row)
        stop_reason = next(event.stop_reason for event in reversed(events) if isinstance(event, Verification))
        response = assemble_response(restored, {**row, "responses_create_params": params}, stop_reason=stop_reason)
        return events, params, {**response, "created_at": time.time()}


def _scored(verified: Verification) -> dict[str, Any]:
    """Return the reward fields of the reply.

    Unverified attempts are marked like those of NeMo Gym's agents, because their reward is not a score.
    """
    if verified.reward is None:
        return {"reward": 0.0, "verification_skipped": True}
    return {
        "reward": verified.reward,
        **({"reward_components": verified.components} if verified.components else {}),
        **({"explanation": verified.explanation} if verified.explanation else {}),
    }


def _seed_of(row: TaskRow) -> int:
    """Return a seed derived from task index and rollout index, or a random one without them."""
    place = [row.get("_ng_task_index"), row.get("_ng_rollout_index")]
    if all(isinstance(number, int) for number in place):
        return zlib.crc32(f"{place[0]}:{place[1]}".encode()) & 0x7FFFFFFF
    return secrets.randbelow(2**31)
