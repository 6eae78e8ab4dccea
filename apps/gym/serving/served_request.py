"""One request and its answer, apart from any web server; and what bad input is told, in the words of FastAPI."""

import asyncio
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from apps.gym.errors import GymError

logger = logging.getLogger(__name__)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`path` has no slash in front; `session` is what the cookie of this server says."""

    method: str
    path: str
    body: bytes = b""
    session: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`session` is to be set as the cookie; empty leaves it as it is."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    session: str = ""


class Served(Protocol):
    """What a port serves. `cookie` names its session's cookie; empty for servers without sessions."""

    name: str

    @property
    def cookie(self) -> str: ...

    async def answer(self, asked: Asked) -> Answer:
        """Raises Refused, GymError, or what user code raises: see `answer_always`."""
        ...

    async def tidy(self) -> None:
        """Every now and then: forget what nobody uses any more."""
        ...

    async def close(self) -> None:
        """At the end."""
        ...


Routes = Mapping[tuple[str, str], Callable[[Asked], Awaitable[Answer]]]
"""(method, path) → what answers it."""


class Refused(Exception):
    """The request cannot be served; `detail` says why, in the shape that FastAPI gives it."""

    def __init__(self, status: int, detail: Any, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


async def greet(asked: Asked) -> Answer:
    """`GET /`, by which clients see that somebody is there."""
    return json_answer({"status": "ok"})


def json_answer(value: Any, status: int = 200, **more: Any) -> Answer:
    return Answer(body=dump(value), status=status, **more)


def dump(value: Any) -> bytes:
    """JSON of whatever user code gave: whole numbers of any size, half surrogate pairs, no NaN."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, default=str).encode()


async def answer_always(served: Served, asked: Asked, *, seconds: float) -> Answer:
    """The answer, whatever happens: a failure of ours is a 500 with its text as a JSON string, as NeMo Gym's are."""
    try:
        async with asyncio.timeout(seconds):
            return await served.answer(asked)
    except Refused as refusal:
        return json_answer({"detail": refusal.detail}, refusal.status, headers=refusal.headers)
    except TimeoutError:
        return json_answer(f"{served.name}: no answer within {seconds:g} s", 504)
    except GymError as problem:
        return json_answer(f"{type(problem).__name__}: {problem}", 500)
    except Exception as bug:
        logger.exception("%s broke at %s %s", served.name, asked.method, asked.path)
        return json_answer(repr(bug), 500)


_OBSERVED = re.compile(r"^ng-rollout/[^/]+/(?:training-token-capture/)?")


def plain_path(path: str) -> str:
    """The route that a path names: without slashes around it, and without the prefix by which NeMo Gym's clients tell
    which rollout a call is of."""
    return _OBSERVED.sub("", path.strip("/"))


def find_route(routes: Routes, asked: Asked) -> Callable[[Asked], Awaitable[Answer]] | None:
    """None for a path that no route has. Raises Refused for a method that it does not take."""
    method = "GET" if asked.method == "HEAD" else asked.method
    found = routes.get((method, asked.path))
    if found is None and any(path == asked.path for _, path in routes):
        raise Refused(405, "Method Not Allowed")
    return found


def not_found() -> Refused:
    return Refused(404, "Not Found")


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises Refused as FastAPI does."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        given = _read_slowly(body)
    if not isinstance(given, dict):
        raise invalid("dict_type", ["body"], "Input should be a valid dictionary")
    return given


def _read_slowly(body: bytes) -> Any:
    """orjson refuses half a surrogate pair, which policy models write; the loop's own encoder sends it escaped."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise invalid("json_invalid", ["body", error.pos], "JSON decode error", ctx={"error": error.msg}) from None
    except (ValueError, RecursionError) as error:
        text = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise invalid("json_invalid", ["body", 0], "JSON decode error", ctx={"error": text}) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def invalid(kind: str, place: list[str | int], message: str, **more: Any) -> Refused:
    return Refused(422, [{"type": kind, "loc": place, "msg": message, **more}])


def read_row(body: bytes) -> dict[str, Any]:
    """A task row: an object with `responses_create_params`, whose nulls mean nothing."""
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


def is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
