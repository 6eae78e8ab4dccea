"""What a resource server tells of itself: whether it is there, its tools, and which verbs of the protocol it has."""

import asyncio
import time
from typing import Any

import msgspec
import orjson

from apps.gym.calls.outbound import OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.openapi import read_routes, read_tools
from apps.gym.resources.protocol import Probe, ReverifyMode
from apps.gym.resources.server_calls import Caller, describe, is_success
from apps.gym.traces.items import Tool


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What an OpenAPI document shows; `has_document` is False where the server has none."""

    tools: list[Tool] = []
    routes: frozenset[str] = frozenset()
    has_document: bool = False

    def describe(self) -> dict[str, Any]:
        """As it is stored; `read_survey` takes it back."""
        return {"tools": self.tools, "routes": sorted(self.routes), "has_document": self.has_document}

    @property
    def is_gymnasium(self) -> bool:
        return {"reset", "step"} <= self.routes and "seed_session" not in self.routes

    @property
    def closes(self) -> bool:
        return "close" in self.routes


def read_survey(stored: dict[str, Any]) -> Survey | None:
    """None where nothing was stored yet."""
    return msgspec.convert(stored, Survey) if stored else None


async def survey_server(caller: Caller) -> Survey:
    """Raises EnvironmentFault where the server cannot be reached."""
    try:
        return await _read_document(await caller.get("/openapi.json"))
    except OutboundFailed as error:
        raise EnvironmentFault(f"{caller.name}: {error}") from error
    except OutboundRefused as error:
        raise EnvironmentFault(f"{caller.name}: {error}").lasting() from error


async def ask_reverify_mode(caller: Caller) -> ReverifyMode:
    """`unknown` for servers that do not say, as older ones. Raises EnvironmentFault where there is no server."""
    try:
        reply = await caller.get("/reverify_mode")
    except (OutboundFailed, OutboundRefused) as error:
        raise EnvironmentFault(f"{caller.name}: {error}") from error
    said = reply.body.strip().strip(b'"') if is_success(reply) else b""
    return "stateless" if said == b"stateless" else "unsupported" if said == b"unsupported" else "unknown"


async def probe_server(caller: Caller, *, gymnasium: bool) -> Probe:
    """A health check: `GET /`, then what `GET /openapi.json` names, where there is one. Never raises."""
    started = time.perf_counter()
    try:
        root = await caller.get("/")
        latency = time.perf_counter() - started
        survey = await _survey_if_any(caller)
        message = await _find_fault(caller, root, survey, gymnasium=gymnasium)
    except (OutboundFailed, OutboundRefused) as error:
        return Probe(healthy=False, message=str(error), latency=time.perf_counter() - started)
    if message:
        return Probe(healthy=False, message=message, latency=latency)
    told = _count(survey.tools) if survey.has_document else "no OpenAPI document"
    return Probe(
        healthy=True, message=f"reachable; {told}", latency=latency, tools=survey.tools, found=survey.describe()
    )


async def _find_fault(caller: Caller, root: OutboundReply, survey: Survey, *, gymnasium: bool) -> str:
    """Why attempts there would fail; empty where nothing is seen to be wrong."""
    if survey.has_document:
        if gymnasium and "seed_session" in survey.routes and not {"reset", "step"} <= survey.routes:
            return "it has /seed_session but no /reset and /step: choose the adapter for resource servers over HTTP"
        if not gymnasium and survey.is_gymnasium:
            return "it has /reset and /step but no /seed_session: choose the adapter for Gymnasium servers"
        return ""
    if is_success(root):
        return ""
    if root.status >= 500:
        return f"GET / answered {describe(root)}"
    # Some servers have neither a page at "/" nor a schema. Where the first route of an attempt exists, asking it with
    # the wrong method says so, and changes nothing.
    first = "/reset" if gymnasium else "/seed_session"
    reply = await caller.get(first)
    return "" if reply.status == 405 or is_success(reply) else f"GET / answered {describe(root)}"


async def _survey_if_any(caller: Caller) -> Survey:
    try:
        return await _read_document(await caller.get("/openapi.json"))
    except OutboundFailed:
        return Survey()


async def _read_document(reply: OutboundReply) -> Survey:
    if not is_success(reply):
        return Survey()

    def read() -> Survey:
        document: Any = orjson.loads(reply.body)
        return Survey(tools=read_tools(document), routes=read_routes(document), has_document=True)

    try:
        # Off the loop: a document may be megabytes.
        return await asyncio.to_thread(read)
    except orjson.JSONDecodeError:
        return Survey()


def _count(tools: list[Tool]) -> str:
    return f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'} in its OpenAPI document"
