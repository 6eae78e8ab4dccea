"""Gymnasium servers over HTTP: `/reset`, `/step` with every reply of the policy model, and `/close`.

The reward of an attempt is the sum of the rewards of its steps. Observations are user messages.
"""

import json
import uuid
from typing import Any

import orjson

from apps.gym.calls.outbound import OutboundReply
from apps.gym.errors import EnvironmentFault, GymError, VerifierError
from apps.gym.resources.nemo_gym_http import CLOSE_SECONDS
from apps.gym.resources.protocol import Probe, ReverifyMode, Step, ToolOutput
from apps.gym.resources.server_calls import Caller, describe, is_success, may_pass
from apps.gym.resources.server_survey import probe_server
from apps.gym.resources.verify_bodies import encode_body, is_number, keep_small
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, function_calls, message

_MAX_STEP_REWARDS = 1_000


class GymnasiumSession:
    """One attempt at a Gymnasium server, its cookies carried from call to call."""

    def __init__(self, server: "GymnasiumServer", row: TaskRow) -> None:
        self._server = server
        self._row = row
        self._cookies: dict[str, str] = {}
        self._rewards: list[float] = []
        self._closes = self._repeatable = False
        self._terminated = self._truncated = False
        self._told: dict[str, Any] = {}
        self.opening: list[Item] = []

    async def reset(self) -> None:
        reply = await self._post("reset", self._row, patient=True)
        if not is_success(reply):
            problem = EnvironmentFault(f"{self._server.name}: POST /reset answered {describe(reply)}")
            raise problem if may_pass(reply) else problem.lasting()
        given = self._read(reply, "/reset")
        info = _object(given.get("info"))
        # First of all: from here on the server holds a place for this attempt.
        self._closes = info.get("supports_explicit_close") is True
        self._repeatable = info.get("supports_step_idempotency") is True
        self.opening = self._observe(given)

    async def list_tools(self) -> list[Tool]:
        """None of its own: over this protocol the task row declares the tools."""
        return []

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Never asked: a step carries its calls with it."""
        return ToolOutput(text=dump_json({"error": "this environment takes calls with steps"}), error="unknown_tool")

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    async def step(self, response: dict[str, Any]) -> Step:
        """Raises EnvironmentFault, TimedOut, and VerifierError for a reward that is no finite number."""
        body = {**self._row, "response": response}
        if self._repeatable:
            body["_ng_step_request_id"] = uuid.uuid4().hex
        # A step that is sent twice is taken twice, unless the server knows it by its number.
        reply = await self._post("step", body, patient=self._repeatable, once=not self._repeatable)
        calls = [str(call.get("call_id", "")) for call in function_calls(response["output"])]
        if not is_success(reply):
            return self._refused(reply, calls)
        given = self._read(reply, "/step")
        value = given.get("reward", 0.0)
        if not is_number(value):
            raise VerifierError(f"{self._server.name}: the reply of /step has no finite number as `reward`: {value!r}")
        self._rewards.append(float(value))
        self._terminated, self._truncated = given.get("terminated") is True, given.get("truncated") is True
        self._told = _object(given.get("info"))
        done = self._terminated or self._truncated
        outputs = _read_outputs(self._told)
        if not done:
            missing = ToolOutput(text=dump_json({"error": "the environment gave no output for this call"}))
            outputs = {call: outputs.get(call, missing) for call in calls}
        return Step(outputs=outputs, items=self._observe(given), done=done)

    def _refused(self, reply: OutboundReply, calls: list[str]) -> Step:
        """An action that the environment cannot read is the model's mistake: it reads what the server says of it."""
        if may_pass(reply):
            raise EnvironmentFault(f"{self._server.name}: POST /step answered {describe(reply)}")
        text = reply.body.decode("utf-8", "replace")
        error = f"http_{reply.status}"
        if calls:
            return Step(outputs={call: ToolOutput(text=text, error=error) for call in calls})
        return Step(items=[message("user", text or error)])

    async def verify(self, response: dict[str, Any]) -> Reward:
        """The sum of the steps' rewards. An attempt that ended before the environment did counts as truncated."""
        if not self._server.verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        count = len(self._rewards)
        return Reward(
            value=sum(self._rewards),
            explanation=f"the sum of the rewards of {count} {'step' if count == 1 else 'steps'}",
            details=keep_small(
                {
                    "terminated": self._terminated,
                    "truncated": self._truncated or not self._terminated,
                    "step_rewards": self._rewards[-_MAX_STEP_REWARDS:],
                    "info": self._told,
                }
            ),
        )

    async def close(self) -> None:
        if not self._closes:
            return
        self._closes = False
        try:
            await self._server.caller.post(
                "close", b"{}", cookies=self._cookies, seconds=CLOSE_SECONDS, patient=False, once=True
            )
        except GymError:
            return  # What the attempt came to stands, and the server's own time limit ends the session.

    async def _post(
        self, path: str, body: dict[str, Any], *, patient: bool = False, once: bool = False
    ) -> OutboundReply:
        reply = await self._server.caller.post(
            path,
            encode_body(body),
            cookies=self._cookies,
            seconds=self._server.call_timeout,
            patient=patient,
            once=once,
        )
        if reply.cookies:
            self._cookies = {**self._cookies, **reply.cookies}
        return reply

    def _read(self, reply: OutboundReply, path: str) -> dict[str, Any]:
        try:
            given = _loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise EnvironmentFault(f"{self._server.name}: the reply of {path} is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise EnvironmentFault(f"{self._server.name}: the reply of {path} is not an object")
        return given

    def _observe(self, given: dict[str, Any]) -> list[Item]:
        observation = given.get("observation")
        if not observation:
            return []
        return [message("user", observation if isinstance(observation, str) else dump_json(observation))]


class GymnasiumServer:
    """The Gymnasium server that `caller` calls. Its `call_timeout` is for a reset or a step."""

    def __init__(self, caller: Caller, *, verifies: bool = True) -> None:
        self.name = caller.name
        self.call_timeout = caller.call_timeout
        self.verifies = verifies
        self.caller = caller

    async def seed_session(self, row: TaskRow, *, seed: int) -> GymnasiumSession:
        """Raises EnvironmentFault, or TimedOut. The protocol has no place for `seed`: a row names its own."""
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
        """Its rewards are those of the steps, which are gone with the session."""
        return "unsupported"


def _read_outputs(info: dict[str, Any]) -> dict[str, ToolOutput]:
    given = info.get("tool_outputs")
    outputs = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return {
        str(one.get("call_id", "")): ToolOutput(
            text=out if isinstance(out := one.get("output"), str) else dump_json(out)
        )
        for one in outputs
    }


def _loads(body: bytes) -> Any:
    """JSON, and what Python writes in its place: NaN and its like become texts, so a reward of NaN is no number."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body, parse_constant=str, parse_int=float)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
