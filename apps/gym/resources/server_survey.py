"""Find out whether a resource server is reachable, its tools, and its protocol routes."""

import asyncio
import time
from typing import Any

import msgspec
import orjson

from apps.gym.calls.outbound import OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.protocol import Probe, ReverifyMode
from apps.gym.resources.server_calls import Caller, describe, is_success
from apps.gym.traces.items import Tool, as_object

PROTOCOL_ROUTES = frozenset(
    {
        "seed_session",
        "close_session",
        "verify",
        "aggregate_metrics",
        "reverify_mode",
        "mcp",
        "openapi.json",
        "docs",
        "redoc",
    }
)
"""Paths of the resource-server protocol (NeMo Gym 0.7.0). A policy model that called one as a tool could score itself,
or end its session."""

GYMNASIUM_ROUTES = frozenset({"reset", "step", "close"})
"""Paths of the Gymnasium protocol. Elsewhere they are ordinary names, so a task row may declare tools like these."""

_REFERENCE = "#/components/schemas/"
_MAX_DEPTH = 12


def read_tools(document: object) -> list[Tool]:
    """Return one tool for each `POST /name` that is not a protocol route. Catch-all routes are ignored."""
    paths = as_object(as_object(document).get("paths"))
    schemas = as_object(as_object(as_object(document).get("components")).get("schemas"))
    tools = []
    for path, operations in paths.items():
        name = path.removeprefix("/")
        operation = as_object(operations).get("post")
        if not isinstance(operation, dict) or not name or "/" in name or "{" in name:
            continue
        if name not in PROTOCOL_ROUTES | GYMNASIUM_ROUTES:
            tools.append(_read_tool(name, operation, schemas))
    return tools


def read_routes(document: object) -> frozenset[str]:
    """Return the names of all `POST /name` operations, including those of the protocol."""
    paths = as_object(as_object(document).get("paths"))
    return frozenset(path.removeprefix("/") for path, operations in paths.items() if "post" in as_object(operations))


def _read_tool(name: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Tool:
    content = as_object(as_object(operation.get("requestBody")).get("content"))
    schema = _inline(as_object(content.get("application/json")).get("schema"), schemas)
    description = operation.get("description") or operation.get("summary")
    return {
        "type": "function",
        "name": name,
        "description": description if isinstance(description, str) else "",
        "parameters": as_object(schema) or {"type": "object", "properties": {}},
        # Only environments served by GymWeb declare this.
        "strict": operation.get("x-strict") is True,
    }


def _inline(schema: object, schemas: dict[str, Any], depth: int = 0) -> object:
    """Return the schema with its references resolved, and with `{}` (anything) beyond the maximum depth."""
    if depth > _MAX_DEPTH:
        return {}
    if isinstance(schema, list):
        return [_inline(one, schemas, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _inline(schemas.get(reference.removeprefix(_REFERENCE), {}), schemas, depth + 1)
    return {key: _inline(value, schemas, depth + 1) for key, value in schema.items()}


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an OpenAPI document. `has_document` is False if the server has none."""

    tools: list[Tool] = []
    routes: frozenset[str] = frozenset()
    has_document: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the stored form; `read_survey` parses it."""
        return {"tools": self.tools, "routes": sorted(self.routes), "has_document": self.has_document}

    @property
    def is_gymnasium(self) -> bool:
        return {"reset", "step"} <= self.routes and "seed_session" not in self.routes

    @property
    def closing_routes(self) -> list[str]:
        """The routes that end a session: NeMo Gym 0.7.0's, and that of earlier versions."""
        return [route for route in ("close_session", "close") if route in self.routes]


def read_survey(stored: dict[str, Any]) -> Survey | None:
    """Return a stored survey, or None if there is none. Tools that have become routes of the protocol are left out."""
    if not stored:
        return None
    survey = msgspec.convert(stored, Survey)
    return msgspec.structs.replace(survey, tools=[one for one in survey.tools if one["name"] not in PROTOCOL_ROUTES])


async def survey_server(caller: Caller) -> Survey:
    """Fetch and read the OpenAPI document. Raises EnvironmentFault if the server cannot be reached."""
    try:
        return await _read_document(await caller.get("/openapi.json"))
    except OutboundFailed as error:
        raise EnvironmentFault(f"{caller.name}: {error}") from error
    except OutboundRefused as error:
        raise EnvironmentFault(f"{caller.name}: {error}").permanent() from error


async def ask_reverify_mode(caller: Caller) -> ReverifyMode:
    """Return the server's mode, `unknown` if it does not tell. Raises EnvironmentFault if it cannot be reached."""
    try:
        reply = await caller.get("/reverify_mode")
    except (OutboundFailed, OutboundRefused) as error:
        raise EnvironmentFault(f"{caller.name}: {error}") from error
    said = reply.body.strip().strip(b'"') if is_success(reply) else b""
    return "stateless" if said == b"stateless" else "unsupported" if said == b"unsupported" else "unknown"


async def probe_server(caller: Caller, *, gymnasium: bool) -> Probe:
    """Check health: `GET /`, then `GET /openapi.json` if there is one. Never raises."""
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
    count = f"{len(survey.tools)} {'tool' if len(survey.tools) == 1 else 'tools'} in its OpenAPI document"
    told = count if survey.has_document else "no OpenAPI document"
    return Probe(
        healthy=True, message=f"reachable; {told}", latency=latency, tools=survey.tools, found=survey.describe()
    )


async def _find_fault(caller: Caller, root: OutboundReply, survey: Survey, *, gymnasium: bool) -> str:
    """Return why attempts would fail, or an empty text if no fault was found."""
    if survey.has_document:
        if gymnasium and "seed_session" in survey.routes and not {"reset", "step"} <= survey.routes:
            return "it has /seed_session but no /reset and /step. Choose the adapter for resource servers over HTTP"
        if not gymnasium and survey.is_gymnasium:
            return "it has /reset and /step but no /seed_session. Choose the adapter for Gymnasium servers"
        return ""
    if is_success(root):
        return ""
    if root.status >= 500:
        return f"GET / returned {describe(root)}"
    # Some servers have neither a page at "/" nor a schema. If the first route of an attempt exists, calling it with the
    # wrong method returns 405 without side effects.
    first = "/reset" if gymnasium else "/seed_session"
    reply = await caller.get(first)
    return "" if reply.status == 405 or is_success(reply) else f"GET / returned {describe(root)}"


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
        # In a thread, because a document may have megabytes.
        return await asyncio.to_thread(read)
    except orjson.JSONDecodeError:
        return Survey()
