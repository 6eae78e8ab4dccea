"""Gymnasium servers over HTTP: `/reset`, `/step` with every reply of the policy model, and `/close`.

The reward of an attempt is the sum of the rewards of its steps. Observations are user messages.
"""

import json
import uuid
from typing import Any

import orjson

from apps.gym.errors import EnvironmentFault, VerifierError
from apps.gym.outcomes import mask_fields
from apps.gym.resources.protocol import (
    Probe,
    ResourceServer,
    ReverifyMode,
    Step,
    SteppedSession,
    ToolOutput,
    output_with_images,
    read_parts,
)
from apps.gym.resources.server_calls import Caller, CallerSession, check_success
from apps.gym.resources.server_survey import probe_server
from apps.gym.resources.verify_bodies import keep_small, parse_object
from apps.gym.rewards import Reward
from apps.gym.storable import is_number
from apps.gym.traces.items import Item, TaskRow, as_object, dump_json, encode_json, function_calls, message

_MAX_STEP_REWARDS = 1_000


class GymnasiumSession(CallerSession, SteppedSession):
    """One attempt at a Gymnasium server. Its cookies are sent with each call."""

    def __init__(self, server: "GymnasiumServer", row: TaskRow) -> None:
        super().__init__(server.caller, row)
        self._server = server
        self._rewards: list[float] = []
        self._repeatable = False
        self._terminated = self._truncated = False
        self._told: dict[str, Any] = {}
        self._mask: dict[str, Any] = {}
        self.opening = []

    async def reset(self) -> None:
        seconds = self._server.call_timeout
        reply = await self._post("reset", encode_json(self._row), seconds=seconds, patient=True)
        check_success(reply, f"{self._server.name}: POST /reset")
        given = parse_object(reply.body, f"{self._server.name}: the reply of /reset", EnvironmentFault, _loads)
        info = as_object(given.get("info"))
        # Read this first: from here on the server holds resources for this attempt.
        self._closing_routes = ["close"] if info.get("supports_explicit_close") is True else []
        self._repeatable = info.get("supports_step_idempotency") is True
        self.opening = self._observe(given)

    async def step(self, response: dict[str, Any]) -> Step:
        """Take one step.

        Raises EnvironmentFault, also for an action that the server refuses, as NeMo Gym's agent does. Raises TimedOut,
        and VerifierError for a reward that is not a finite number.
        """
        body = {**self._row, "response": response}
        if self._repeatable:
            body["_ng_step_request_id"] = uuid.uuid4().hex
        # Repeating a step would execute it twice, unless the server recognises its id.
        options = {"patient": self._repeatable, "once": not self._repeatable}
        reply = await self._post("step", encode_json(body), seconds=self._server.call_timeout, **options)
        check_success(reply, f"{self._server.name}: POST /step")
        given = parse_object(reply.body, f"{self._server.name}: the reply of /step", EnvironmentFault, _loads)
        value = given.get("reward", 0.0)
        if not is_number(value):
            raise VerifierError(f"{self._server.name}: the reply of /step has no finite number as `reward`: {value!r}")
        self._rewards.append(float(value))
        self._mask |= mask_fields(given)
        self._terminated, self._truncated = given.get("terminated") is True, given.get("truncated") is True
        self._told = as_object(given.get("info"))
        done = self._terminated or self._truncated
        outputs = _read_outputs(self._told)
        if not done:
            missing = ToolOutput(text=dump_json({"error": "the environment returned no output for this call"}))
            calls = function_calls(response["output"])
            found = zip(calls, Step(outputs=outputs).outputs_of(calls), strict=True)
            outputs = [(str(call.get("call_id", "")), output or missing) for call, output in found]
        return Step(outputs=outputs, items=self._observe(given), done=done)

    async def verify(self, response: dict[str, Any]) -> Reward:
        """Return the sum of the steps' rewards.

        An attempt that ended before the environment did counts as truncated.
        """
        count = len(self._rewards)
        return Reward(
            value=sum(self._rewards),
            explanation=f"the sum of the rewards of {count} {'step' if count == 1 else 'steps'}",
            details=keep_small(
                {
                    "terminated": self._terminated,
                    "truncated": self._truncated or not self._terminated,
                    "step_rewards": self._rewards[-_MAX_STEP_REWARDS:],
                    **self._mask,
                    "info": self._told,
                }
            ),
        )

    def _observe(self, given: dict[str, Any]) -> list[Item]:
        observation = given.get("observation")
        if not observation:
            return []
        return [message("user", observation if isinstance(observation, str) else dump_json(observation))]


class GymnasiumServer(ResourceServer):
    """The Gymnasium server that `caller` calls. Its `call_timeout` limits each reset and step."""

    def __init__(self, caller: Caller) -> None:
        self.name = caller.name
        self.call_timeout = caller.call_timeout
        self.caller = caller

    async def seed_session(self, row: TaskRow, *, seed: int) -> GymnasiumSession:
        """Reset the environment for one attempt.

        Raises EnvironmentFault or TimedOut. The protocol has no field for `seed`: a row has its own.
        """
        session = GymnasiumSession(self, row)
        try:
            await session.reset()
        except BaseException:
            await session.close()
            raise
        return session

    async def probe(self) -> Probe:
        return await probe_server(self.caller, gymnasium=True)

    async def reverify_mode(self) -> ReverifyMode:
        """Return "unsupported": rewards come from the steps, which end with the session."""
        return "unsupported"


def _read_outputs(info: dict[str, Any]) -> list[tuple[str, ToolOutput]]:
    given = info.get("tool_outputs")
    outputs = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return [(str(one.get("call_id", "")), _read_output(one.get("output"))) for one in outputs]


def _read_output(given: Any) -> ToolOutput:
    text = given if isinstance(given, str) else dump_json(given)
    parts = read_parts(text)
    return output_with_images(parts) if parts else ToolOutput(text=text)


def _loads(body: bytes) -> Any:
    """Parse JSON, including Python's extensions. NaN and infinities become texts, so they are not valid rewards."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body, parse_constant=str, parse_int=float)
