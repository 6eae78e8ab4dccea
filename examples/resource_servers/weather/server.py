"""An example resource server: one tool, state per attempt, a verifier, over NeMo Gym's HTTP protocol.

    python server.py --port 8123

An attempt is `POST /seed_session` with its task row, any number of `POST /get_weather`, and `POST /verify` with the row
and the model's response. A signed cookie, sent again with every reply, ties the calls of one attempt together.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import secrets
import signal
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

COOKIE = "WeatherResourcesServer___weather"
COOKIE_SECONDS = 14 * 24 * 3600
MAX_SESSIONS = 100_000
MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass
class Attempt:
    """The state of one attempt."""

    id: str
    cities: list[str] = field(default_factory=list)


class Attempts:
    """The attempts in memory, latest use last. Beyond MAX_SESSIONS the one that was idle longest is dropped.

    The secret lives as long as the process, so a restart drops every attempt.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._attempts: OrderedDict[str, Attempt] = OrderedDict()

    def find(self, cookie: str | None) -> Attempt:
        """Return the attempt of the cookie, or a new one if there is no valid cookie."""
        identifier, _, rest = (cookie or "").partition(".")
        stamp, _, signature = rest.partition(".")
        genuine = hmac.compare_digest(signature.encode(), self._sign(identifier, stamp).encode())
        attempt = self._attempts.get(identifier) if genuine else None
        if attempt is None:
            attempt = Attempt(id=secrets.token_hex(16))
            self._attempts[attempt.id] = attempt
            if len(self._attempts) > MAX_SESSIONS:
                self._attempts.popitem(last=False)
        self._attempts.move_to_end(attempt.id)
        return attempt

    def cookie(self, attempt: Attempt) -> str:
        stamp = str(int(time.time()))
        return f"{attempt.id}.{stamp}.{self._sign(attempt.id, stamp)}"

    def _sign(self, identifier: str, stamp: str) -> str:
        return hmac.new(self._secret, f"{identifier}.{stamp}".encode(), hashlib.sha256).hexdigest()


class Invalid(Exception):
    """Raised for an invalid body, with the problem in FastAPI's format."""

    def __init__(self, *problems: dict[str, Any]) -> None:
        super().__init__(problems)
        self.problems = problems


def missing(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": "missing", "loc": ["body", name], "msg": "Field required", "input": body}


async def read_body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise Invalid(
            {
                "type": "json_invalid",
                "loc": ["body", getattr(error, "pos", 0)],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": getattr(error, "msg", str(error))},
            }
        ) from None
    if not isinstance(body, dict):
        raise Invalid(
            {"type": "dict_type", "loc": ["body"], "msg": "Input should be a valid dictionary", "input": body}
        )
    return body


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def carry_session(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the attempt, handle the request, and send the cookie again, also with errors."""
    attempt = request.app[ATTEMPTS].find(request.cookies.get(COOKIE))
    request[ATTEMPT] = attempt
    try:
        reply = await handler(request)
    except Invalid as invalid:
        reply = web.json_response({"detail": invalid.problems}, status=422)
    except web.HTTPException as error:
        reply = web.json_response({"detail": error.reason}, status=error.status)
    reply.set_cookie(
        COOKIE,
        request.app[ATTEMPTS].cookie(attempt),
        path="/",
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="Lax",
    )
    return reply


ATTEMPTS = web.AppKey("attempts", Attempts)
ATTEMPT: web.RequestKey[Attempt] = web.RequestKey("attempt", Attempt)


async def show_status(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def show_schema(request: web.Request) -> web.Response:
    return web.json_response(SCHEMA)


async def seed_session(request: web.Request) -> web.Response:
    """Start an attempt: check the task row and prepare the state of its tools."""
    row = await read_body(request)
    if "responses_create_params" not in row:
        raise Invalid(missing("responses_create_params", row))
    request[ATTEMPT].cities.clear()
    return web.json_response({})


async def get_weather(request: web.Request) -> web.Response:
    """Call the tool. The policy model reads the text of the response."""
    arguments = await read_body(request)
    problems = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": value}
        for name, value in arguments.items()
        if name != "city"
    ]
    if "city" not in arguments:
        problems.insert(0, missing("city", arguments))
    elif not isinstance(arguments["city"], str):
        wrong = {"type": "string_type", "loc": ["body", "city"], "msg": "Input should be a valid string"}
        problems.insert(0, {**wrong, "input": arguments["city"]})
    if problems:
        raise Invalid(*problems)
    city = arguments["city"]
    request[ATTEMPT].cities.append(city)
    return web.json_response({"city": city, "weather_description": f"The weather in {city} is cold."})


async def verify(request: web.Request) -> web.Response:
    """Verify the attempt: 1.0 if the model asked for the weather. The response has the row and its score."""
    row = await read_body(request)
    absent = [missing(name, row) for name in ("responses_create_params", "response") if name not in row]
    if absent:
        raise Invalid(*absent)
    cities = request[ATTEMPT].cities
    asked = f"the weather was asked for in {', '.join(cities)}" if cities else "the weather was never asked for"
    score = {"reward": 1.0 if cities else 0.0, "explanation": asked, "cities": cities}
    return web.json_response({**row, **score})


SCHEMA: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1.0.0"},
    "paths": {
        "/seed_session": {"post": {"summary": "Seed Session"}},
        "/verify": {"post": {"summary": "Verify"}},
        "/get_weather": {
            "post": {
                "summary": "Get Weather",
                "description": "Get the current weather for a city.",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GetWeather"}}},
                },
            }
        },
    },
    "components": {
        "schemas": {
            "GetWeather": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The city to get the weather for."}},
                "required": ["city"],
                "additionalProperties": False,
            }
        }
    },
}


def make_app() -> web.Application:
    app = web.Application(middlewares=[carry_session], client_max_size=MAX_BODY_BYTES)
    app[ATTEMPTS] = Attempts()
    app.router.add_get("/", show_status)
    app.router.add_get("/openapi.json", show_schema)
    app.router.add_post("/seed_session", seed_session)
    app.router.add_post("/get_weather", get_weather)
    app.router.add_post("/verify", verify)
    return app


async def serve(host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT, then finish open requests. Port 0 takes a free one and prints it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(make_app(), access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        bound = runner.addresses[0][1]
        print(f"weather resource server on http://{host}:{bound}", flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small resource server with one tool: get_weather{city}.")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    asyncio.run(serve(options.host, options.port))
