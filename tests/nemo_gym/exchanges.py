"""Exchanges with NeMo Gym's own servers: recorded through a proxy, and replayed where they are not installed."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from tests.nemo_gym import solving
from tests.nemo_gym.attempts import attempt, loopback
from tests.nemo_gym.rows import OWN

RECORDINGS = Path(__file__).with_name("recorded_servers")
VERSION = "0.7.0"
PLAYS: dict[str, list[Any]] = {
    "example_single_tool_call": [solving.weather],
    "example_session_state_mgmt": [solving.count, solving.count_wrong],
    "example_multi_step": [solving.synonyms, solving.synonyms_wrong],
    "example_tool_call_multireward": [solving.one_call, solving.one_call_wrong],
    "mcqa": [solving.letter, solving.letter_wrong],
    "string_match": [solving.string, solving.nothing],
    "xlam_fc": [solving.calls, solving.calls_wrong],
    "calendar": [solving.calendar, solving.calendar_wrong],
    "reasoning_gym": [solving.reasoning, solving.nothing],
    "example_multi_turn_gymnasium": [solving.follow_ups, solving.nothing],
}
"""By server, what the model does. The rows are our own."""
_VOLATILE = {"id", "created_at"}
"""Keys of a request whose values differ between runs."""
_HEADERS = ("Content-Type", "Set-Cookie")


async def play(name: str, url: str) -> list[list[float | None]]:
    """Return the rewards of our rows by play. Attempts run one after the other."""
    outbound = loopback()
    caller = Caller(outbound, name=name, base_url=url, call_timeout=60.0, max_tries=1)
    server = GymnasiumServer(caller) if "gymnasium" in name else HttpResourceServer(caller, verify_timeout=60.0)
    try:
        return [[(await attempt(server, row, moves))[-1].reward for row in OWN[name]] for moves in PLAYS[name]]
    finally:
        await outbound.close()


@asynccontextmanager
async def serving(handle: Any) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def record(name: str, url: str) -> dict[str, Any]:
    """Return the exchanges of all plays with a real server, equal ones once, and the rewards."""
    exchanges: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            content = await request.read()
            headers = {key: value for key, value in request.headers.items() if key in ("Content-Type", "Cookie")}
            async with session.request(request.method, url + request.path, data=content, headers=headers) as reply:
                answer = await reply.read()
                kept = [[key, value] for key, value in reply.headers.items() if key in _HEADERS]
            made = {
                "request": [request.method, request.path, json.loads(content or "null")],
                "status": reply.status,
                "headers": kept,
                "reply": _shortened(answer.decode()) if request.path == "/openapi.json" else answer.decode(),
            }
            same = next((one for one in exchanges if one | {"times": 1} == made | {"times": 1}), None)
            if same:
                same["times"] += 1
            else:
                exchanges.append(made | {"times": 1})
            return _answer(made)

        async with serving(forward) as proxy:
            rewards = await play(name, proxy)
    return {"server": name, "version": VERSION, "rewards": rewards, "exchanges": exchanges}


async def replay(recording: dict[str, Any]) -> tuple[list[list[float | None]], list[Any]]:
    """Return the rewards of all plays, and the recorded requests that were not sent again."""
    left = [one for one in recording["exchanges"] for _ in range(one["times"])]

    async def answer(request: web.Request) -> web.StreamResponse:
        sent = [request.method, request.path, json.loads(await request.read() or "null")]
        found = next((one for one in left if _without(one["request"], _VOLATILE) == _without(sent, _VOLATILE)), None)
        if found is None:
            return web.Response(status=500, text=f"not recorded: {json.dumps(sent)[:500]}")
        left.remove(found)
        return _answer(found)

    async with serving(answer) as url:
        rewards = await play(recording["server"], url)
    return rewards, [one["request"] for one in left]


def _shortened(document: str) -> str:
    """Return an OpenAPI document with the schemas of bodies, without the schemas of their fields, 200 KB in all."""
    read = json.loads(document)
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(read["paths"])))
    schemas = read.get("components", {}).get("schemas", {})
    kept = {
        name: {**schemas[name], "properties": {key: {} for key in schemas[name].get("properties", {})}}
        for name in sorted(named)
    }
    return json.dumps(_without({**read, "components": {"schemas": kept}}, {"description", "summary"}))


def _without(value: Any, names: set[str]) -> Any:
    """Return a JSON value without these keys."""
    if isinstance(value, dict):
        return {key: _without(one, names) for key, one in value.items() if key not in names}
    return [_without(one, names) for one in value] if isinstance(value, list) else value


def _answer(exchange: dict[str, Any]) -> web.Response:
    reply = web.Response(status=exchange["status"], body=exchange["reply"].encode())
    for key, value in exchange["headers"]:
        reply.headers.add(key, value) if key == "Set-Cookie" else reply.headers.update({key: value})
    return reply
