"""Requests and responses independent of the web server, with errors in FastAPI's format."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import orjson

from apps.gym.errors import GymError
from apps.gym.traces.items import encode_json, refuse_constant

logger = logging.getLogger(__name__)


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `path` has no leading slash. `session` is the value of the session cookie."""

    method: str
    path: str
    body: bytes = b""
    session: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `session` is set as the cookie, unless it is empty."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    session: str = ""


Route = Callable[[IncomingRequest], Awaitable[Answer]]


class Served:
    """Base class of servers. `cookie` is the name of the session cookie, or empty for servers without sessions."""

    name: str
    cookie = ""
    routes: Mapping[tuple[str, str], Route]
    """Handlers by (method, path)."""

    async def answer(self, incoming: IncomingRequest) -> Answer:
        """Handle a request. Raise Refused, GymError, or errors of custom code; `answer_always` catches them."""
        return await self.find_route(incoming)(incoming)

    def find_route(self, incoming: IncomingRequest) -> Route:
        """Return the handler of a request. Raise Refused for an unknown path or method."""
        method = "GET" if incoming.method == "HEAD" else incoming.method
        if found := self.routes.get((method, incoming.path)):
            return found
        if any(path == incoming.path for _, path in self.routes):
            raise Refused(405, "Method Not Allowed")
        raise Refused(404, "Not Found")

    async def tidy(self) -> None:
        """Remove expired sessions. Called periodically."""

    async def close(self) -> None:
        """Close all sessions. Called at shutdown."""


class Refused(Exception):
    """Raised to reject a request. `detail` has the reason in FastAPI's format."""

    def __init__(self, status: int, detail: Any, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


async def greet(incoming: IncomingRequest) -> Answer:
    """Handle `GET /`, which clients use to check that the server is up."""
    return json_answer({"status": "ok"})


def json_answer(value: Any, status: int = 200, **more: Any) -> Answer:
    return Answer(body=encode_json(value), status=status, **more)


async def answer_always(served: Served, incoming: IncomingRequest, *, seconds: float) -> Answer:
    """Handle a request and never raise. A server error is a 500 with its text as a JSON string, as in NeMo Gym."""
    try:
        async with asyncio.timeout(seconds):
            return await served.answer(incoming)
    except Refused as refusal:
        return json_answer({"detail": refusal.detail}, refusal.status, headers=refusal.headers)
    except TimeoutError:
        return json_answer(f"{served.name}: no answer within {seconds:g} s", 504)
    except GymError as problem:
        return json_answer(f"{type(problem).__name__}: {problem}", 500)
    except Exception as bug:
        logger.exception("%s failed at %s %s", served.name, incoming.method, incoming.path)
        return json_answer(repr(bug), 500)


_OBSERVED = re.compile(r"^ng-rollout/[^/]+/(?:training-token-capture/)?")


def plain_path(path: str) -> str:
    """Return the path without outer slashes and without the rollout prefix of NeMo Gym's clients."""
    return _OBSERVED.sub("", path.strip("/"))


def read_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object in a body. Raise Refused in FastAPI's format."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        given = _read_slowly(body)
    if not isinstance(given, dict):
        raise invalid("dict_type", ["body"], "Input should be a valid dictionary")
    return given


def _read_slowly(body: bytes) -> Any:
    """Parse with the standard library: orjson rejects lone surrogates, which models write."""
    try:
        return json.loads(body, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise invalid("json_invalid", ["body", error.pos], "JSON decode error", ctx={"error": error.msg}) from None
    except (ValueError, RecursionError) as error:
        text = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise invalid("json_invalid", ["body", 0], "JSON decode error", ctx={"error": text}) from None


def invalid(kind: str, place: list[str | int], message: str, **more: Any) -> Refused:
    return Refused(422, [{"type": kind, "loc": place, "msg": message, **more}])


def read_row(body: bytes) -> dict[str, Any]:
    """Return a task row, which has `responses_create_params`, without nulls in it. Raise Refused."""
    row = read_object(body)
    params = row.get("responses_create_params")
    if params is None:
        raise invalid("missing", ["body", "responses_create_params"], "Field required")
    return {**row, "responses_create_params": read_params(params, ["body", "responses_create_params"])}


def read_params(params: object, place: list[str | int]) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise invalid("dict_type", place, "Input should be a valid dictionary")
    given = {key: value for key, value in params.items() if value is not None}
    if "input" not in given:
        raise invalid("missing", [*place, "input"], "Field required")
    items = given["input"]
    if not isinstance(items, str | list) or not all(
        isinstance(item, dict) for item in items if isinstance(items, list)
    ):
        raise invalid("list_type", [*place, "input"], "Input should be a string or a list of items")
    tools = given.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("list_type", [*place, "tools"], "Input should be a valid list of tools")
    return given
