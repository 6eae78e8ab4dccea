"""Serve one environment as a resource server: sessions, tool calls, verification, metadata."""

import re
import zlib
from typing import Any

from apps.gym.errors import JudgeError
from apps.gym.resources.nemo_gym_http import TOOL_ERROR
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ResourceServer, ReverifyMode, Session
from apps.gym.resources.verify_bodies import judge_failure
from apps.gym.rewards import Reward
from apps.gym.serving.aggregating import aggregate
from apps.gym.serving.served_request import (
    Answer,
    IncomingRequest,
    Refused,
    Route,
    Served,
    invalid,
    json_answer,
    read_object,
    read_row,
)
from apps.gym.serving.served_turns import Turns
from apps.gym.serving.sessions import Sessions
from apps.gym.tasks.rollout_keys import DETAILS
from apps.gym.traces.items import TaskRow, Tool, encode_json

_STATUS = {"unknown_tool": 404, "bad_arguments": 422, "timeout": 504, "too_large": 502}
_KEPT = frozenset({"responses_create_params", "response", "reward", "reward_components", "explanation"})
_UNRESET = "There is no attempt, or it has expired. Please call reset first."
_UNSEEDED = "Session not initialized, or expired. Please call seed_session first."


def cookie_name(name: str) -> str:
    """Return a cookie name in the style of NeMo Gym: class and server, joined by three underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"GymWeb___{name}")


class CannotServe(Exception):
    """Raised if the environment cannot be served over the protocol."""


class ServedEnvironment(Served):
    """Serve an environment.

    `server` is the resource server object. `tools` are listed in the OpenAPI document. `verifying`, if given, verifies
    requests without a session.
    """

    def __init__(
        self,
        server: ResourceServer,
        *,
        sessions: Sessions,
        tools: list[Tool],
        reverify_mode: ReverifyMode,
        verifying: ResourceServer | None = None,
        takes_turns: bool = False,
    ) -> None:
        self.name = server.name
        self.cookie = cookie_name(server.name)
        self.sessions = sessions
        self._server = server
        self._verifying = verifying or server
        self._tools = tools
        self._mode = reverify_mode
        # In NeMo Gym's native protocol, a reply without tool calls ends the attempt. Environments that reply to it use
        # the Gymnasium protocol instead.
        verbs: dict[tuple[str, str], Route] = (
            {("POST", "reset"): self._reset, ("POST", "step"): self._step}
            if takes_turns
            else {("POST", "seed_session"): self._seed, ("POST", "verify"): self._verify}
        )
        self._document = encode_json(openapi_document(server.name, tools, [path for _, path in verbs]))
        self.routes = {
            ("GET", ""): self._greet,
            ("GET", "reverify_mode"): self._reverify_mode,
            ("GET", "openapi.json"): self._describe,
            **verbs,
            ("POST", "close"): self._end,
            ("POST", "aggregate_metrics"): aggregate,
        }

    def find_route(self, incoming: IncomingRequest) -> Route:
        is_tool = incoming.path and "/" not in incoming.path and all(path != incoming.path for _, path in self.routes)
        return self._call_tool if is_tool and incoming.method == "POST" else super().find_route(incoming)

    async def tidy(self) -> None:
        await self.sessions.sweep()

    async def close(self) -> None:
        await self.sessions.close_all()

    async def _greet(self, incoming: IncomingRequest) -> Answer:
        return json_answer({"status": "ok", "sessions": len(self.sessions)})

    async def _reverify_mode(self, incoming: IncomingRequest) -> Answer:
        return json_answer(self._mode)

    async def _describe(self, incoming: IncomingRequest) -> Answer:
        return Answer(body=self._document)

    async def _end(self, incoming: IncomingRequest) -> Answer:
        await self.sessions.close(incoming.session)
        return json_answer({})

    async def _seed(self, incoming: IncomingRequest) -> Answer:
        row = read_row(incoming.body)
        # Seeding again ends the previous session of the client.
        await self.sessions.close(incoming.session)
        name = await self.sessions.open(lambda: self._open(row, self._server))
        return json_answer({"supports_explicit_close": True}, session=name)

    async def _reset(self, incoming: IncomingRequest) -> Answer:
        row = read_row(incoming.body)
        await self.sessions.close(incoming.session)
        opened: list[Turns] = []

        async def open_turns() -> Turns:
            opened.append(Turns(await self._open(row, self._server)))
            return opened[0]

        name = await self.sessions.open(open_turns)
        return json_answer(opened[0].open(), session=name)

    async def _step(self, incoming: IncomingRequest) -> Answer:
        session = self.sessions.find(incoming.session)
        response = read_response(read_row(incoming.body))
        if not isinstance(session, Turns):
            raise Refused(400, _UNRESET)
        result = await session.step(response)
        if result["terminated"] or result["truncated"]:
            self.sessions.mark_verified(incoming.session)
        return json_answer(result, session=incoming.session)

    async def _call_tool(self, incoming: IncomingRequest) -> Answer:
        arguments = read_object(incoming.body) if incoming.body.strip() else {}
        session = self.sessions.find(incoming.session)
        if session is None:
            raise Refused(400, _UNSEEDED)
        output = await session.call_tool(incoming.path, arguments)
        status = _STATUS.get(output.error, 400) if output.error else 200
        return Answer(
            body=encode_json(output.parts) if output.parts else output.text.encode(errors="replace"),
            status=status,
            headers={TOOL_ERROR: output.error} if output.error else {},
            session=incoming.session,
        )

    async def _verify(self, incoming: IncomingRequest) -> Answer:
        row = read_row(incoming.body)
        response = read_response(row)
        try:
            reward = await self._score(row, response, incoming.session)
        except JudgeError as error:
            # As in NeMo Gym: no reward, whatever the other fields.
            failure = judge_failure(error)
            return json_answer({**row, "response": response, **failure}, session=incoming.session)
        if reward.value is None:
            raise CannotServe(f"{self.name} has no verifier")
        return json_answer(_verdict(row, response, reward), session=incoming.session)

    async def _score(self, row: TaskRow, response: dict[str, Any], name: str) -> Reward:
        """Return the reward from the session of the attempt, or from a new session if the verifier is stateless."""
        session = self.sessions.find(name)
        if self._mode != "stateless":
            if session is None:
                raise Refused(400, _UNSEEDED)
            reward = await session.verify(response)
            self.sessions.mark_verified(name)
            return reward
        async with self.sessions.borrow(lambda: self._open(row, self._verifying)) as fresh:
            reward = await fresh.verify(response)
        self.sessions.mark_verified(name)
        return reward

    async def _open(self, row: TaskRow, server: ResourceServer) -> Session:
        return await server.seed_session(row, seed=_seed_of(row))


async def serve_environment(
    server: ResourceServer,
    *,
    most_sessions: int,
    session_seconds: float,
    verifying: ResourceServer | None = None,
) -> ServedEnvironment:
    """Return the served environment.

    Raise CannotServe, and EnvironmentFault if the environment is itself a server that is unreachable.
    """
    probe = await server.probe()
    if not probe.healthy:
        raise CannotServe(f"{server.name} is not healthy: {probe.message}")
    if isinstance(server, UnverifiedServer):
        raise CannotServe(f"{server.name} has no verifier, so it has no reward to serve.")
    return ServedEnvironment(
        server,
        sessions=Sessions(most=most_sessions, seconds=session_seconds),
        tools=probe.tools,
        reverify_mode=await server.reverify_mode(),
        verifying=verifying,
        takes_turns=getattr(server, "takes_turns", False),
    )


def read_response(row: TaskRow) -> dict[str, Any]:
    """Remove and return the response in the row. Raise Refused."""
    response = row.pop("response", None)
    if response is None:
        raise invalid("missing", ["body", "response"], "Field required")
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise invalid("list_type", ["body", "response", "output"], "Input should be a valid list")
    if not all(isinstance(item, dict) for item in response["output"]):
        raise invalid("dict_type", ["body", "response", "output"], "Input should be a list of items")
    return response


def _seed_of(row: TaskRow) -> int:
    """Return the seed of the row, or one derived from the row, so that a task always has the same seed."""
    given = row.get("seed")
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    return zlib.crc32(encode_json(row)) & 0x7FFFFFFF


def _verdict(row: TaskRow, response: dict[str, Any], reward: Reward) -> dict[str, Any]:
    details = {key: value for key, value in reward.details.items() if key not in _KEPT}
    return {
        **row,
        **details,
        "response": response,
        "reward": reward.value,
        **({"reward_components": reward.components} if reward.components else {}),
        **({"explanation": reward.explanation} if reward.explanation else {}),
        DETAILS: sorted(details),
    }


def openapi_document(name: str, tools: list[Tool], verbs: list[str]) -> dict[str, Any]:
    """Return the OpenAPI document with the routes and the argument schemas of the tools."""
    anything = {"type": "object"}
    routes = {f"/{path}": _post(path, "", anything) for path in (*verbs, "close", "aggregate_metrics")}
    for tool in tools:
        called = str(tool.get("name", ""))
        operation = _post(called, str(tool.get("description") or ""), tool.get("parameters") or anything)
        operation["post"]["x-strict"] = tool.get("strict") is True
        routes[f"/{called}"] = operation
    routes["/reverify_mode"] = {"get": {"operationId": "reverify_mode", "responses": {"200": {"description": "OK"}}}}
    return {"openapi": "3.1.0", "info": {"title": name, "version": "1"}, "paths": routes}


def _post(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "description": description,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "OK"}},
    }
    return {"post": operation}
