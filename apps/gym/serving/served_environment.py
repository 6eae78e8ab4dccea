"""One environment as a resource server: sessions, tools, verification, and what clients ask of the server itself."""

import re
import zlib
from typing import Any

from apps.gym.errors import JudgeError
from apps.gym.loop.reverification import ask_reverify_mode
from apps.gym.resources.nemo_gym_http import TOOL_ERROR
from apps.gym.resources.protocol import ResourceServer, ReverifyMode, Session
from apps.gym.rewards import Reward
from apps.gym.serving.aggregating import aggregate
from apps.gym.serving.served_request import (
    Answer,
    Asked,
    Refused,
    Routes,
    dump,
    find_route,
    invalid,
    json_answer,
    not_found,
    read_object,
    read_row,
)
from apps.gym.serving.served_turns import Turns
from apps.gym.serving.sessions import Sessions
from apps.gym.tasks.rollout_keys import DETAILS
from apps.gym.traces.items import TaskRow, Tool

_STATUS = {"unknown_tool": 404, "bad_arguments": 422, "timeout": 504, "too_large": 502}
_KEPT = frozenset({"responses_create_params", "response", "reward", "reward_components", "explanation"})
_UNRESET = "There is no attempt, or it has expired. Please call reset first."
_UNSEEDED = "Session not initialized, or expired. Please call seed_session first."


def cookie_name(name: str) -> str:
    """As NeMo Gym's servers name theirs: class, three underscores, server."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"GymWeb___{name}")


class CannotServe(Exception):
    """This environment has nothing to say over the protocol."""


class ServedEnvironment:
    """`server` is any resource server of ours; `tools` are those that its OpenAPI document names. `verifying` is the
    one that is asked for verdicts without a session, where it is another."""

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
        # A reply without tool calls ends an attempt on servers of NeMo Gym's own protocol: who answers such replies
        # speaks that of Gymnasium in its place.
        verbs: Routes = (
            {("POST", "reset"): self._reset, ("POST", "step"): self._step}
            if takes_turns
            else {("POST", "seed_session"): self._seed, ("POST", "verify"): self._verify}
        )
        self._document = dump(openapi_document(server.name, tools, [path for _, path in verbs]))
        self._routes: Routes = {
            ("GET", ""): self._greet,
            ("GET", "reverify_mode"): self._say_mode,
            ("GET", "openapi.json"): self._describe,
            **verbs,
            ("POST", "close"): self._end,
            ("POST", "aggregate_metrics"): aggregate,
        }

    async def answer(self, asked: Asked) -> Answer:
        route = find_route(self._routes, asked)
        if route is not None:
            return await route(asked)
        if asked.method != "POST" or not asked.path or "/" in asked.path:
            raise not_found()
        return await self._call_tool(asked)

    async def tidy(self) -> None:
        await self.sessions.sweep()

    async def close(self) -> None:
        await self.sessions.close_all()

    async def _greet(self, asked: Asked) -> Answer:
        return json_answer({"status": "ok", "sessions": len(self.sessions)})

    async def _say_mode(self, asked: Asked) -> Answer:
        return json_answer(self._mode)

    async def _describe(self, asked: Asked) -> Answer:
        return Answer(body=self._document)

    async def _end(self, asked: Asked) -> Answer:
        await self.sessions.close(asked.session)
        return json_answer({})

    async def _seed(self, asked: Asked) -> Answer:
        row = read_row(asked.body)
        # Seeded anew, a client's earlier session is over.
        await self.sessions.close(asked.session)
        name = await self.sessions.open(lambda: self._open(row, self._server))
        return json_answer({"supports_explicit_close": True}, session=name)

    async def _reset(self, asked: Asked) -> Answer:
        row = read_row(asked.body)
        await self.sessions.close(asked.session)
        opened: list[Turns] = []

        async def open_turns() -> Turns:
            opened.append(Turns(await self._open(row, self._server)))
            return opened[0]

        name = await self.sessions.open(open_turns)
        return json_answer(opened[0].open(), session=name)

    async def _step(self, asked: Asked) -> Answer:
        session = self.sessions.find(asked.session)
        response = read_response(read_row(asked.body))
        if not isinstance(session, Turns):
            raise Refused(400, _UNRESET)
        told = await session.step(response)
        if told["terminated"] or told["truncated"]:
            self.sessions.mark_verified(asked.session)
        return json_answer(told, session=asked.session)

    async def _call_tool(self, asked: Asked) -> Answer:
        arguments = read_object(asked.body) if asked.body.strip() else {}
        session = self.sessions.find(asked.session)
        if session is None:
            raise Refused(400, _UNSEEDED)
        output = await session.call_tool(asked.path, arguments)
        status = _STATUS.get(output.error, 400) if output.error else 200
        return Answer(
            body=output.text.encode(errors="replace"),
            status=status,
            headers={TOOL_ERROR: output.error} if output.error else {},
            session=asked.session,
        )

    async def _verify(self, asked: Asked) -> Answer:
        row = read_row(asked.body)
        response = read_response(row)
        try:
            reward = await self._score(row, response, asked.session)
        except JudgeError as error:
            # As NeMo Gym's servers say it: no reward, whatever stands beside.
            failure = {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": str(error)}
            return json_answer({**row, "response": response, **failure}, session=asked.session)
        if reward.value is None:
            raise CannotServe(f"{self.name} leaves the judgement to people")
        return json_answer(_verdict(row, response, reward), session=asked.session)

    async def _score(self, row: TaskRow, response: dict[str, Any], name: str) -> Reward:
        """By the session of the attempt; by a new one where the verifier reads nothing but row and response."""
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
    """Raises CannotServe, and EnvironmentFault where the environment itself is a server that does not answer."""
    probe = await server.probe()
    if not probe.healthy:
        raise CannotServe(f"{server.name} is not healthy: {probe.message}")
    if hasattr(server, "verifies") and not server.verifies:
        raise CannotServe(f"{server.name} leaves the judgement to people, so it has no reward to serve.")
    return ServedEnvironment(
        server,
        sessions=Sessions(most=most_sessions, seconds=session_seconds),
        tools=probe.tools,
        reverify_mode=await ask_reverify_mode(server),
        verifying=verifying,
        takes_turns=getattr(server, "takes_turns", False),
    )


def read_response(row: TaskRow) -> dict[str, Any]:
    """The response that stands in the row, taken out of it. Raises Refused."""
    response = row.pop("response", None)
    if response is None:
        raise invalid("missing", ["body", "response"], "Field required")
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise invalid("list_type", ["body", "response", "output"], "Input should be a valid list")
    if not all(isinstance(item, dict) for item in response["output"]):
        raise invalid("dict_type", ["body", "response", "output"], "Input should be a list of items")
    return response


def _seed_of(row: TaskRow) -> int:
    """The row's own seed; else one that follows from the row, so that the same task is the same anew."""
    given = row.get("seed")
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    return zlib.crc32(dump(row)) & 0x7FFFFFFF


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
    """What clients find out about the server: its tools, each with the schema of its arguments, and the routes."""
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
