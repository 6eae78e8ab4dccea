#!/usr/bin/env python
"""A resource server that misbehaves where a task asks for it: its `fault` names how. Otherwise the reward is 1.0.

Faults: `seed_500`, `tool_hang`, `tool_500`, `tool_large` (50 MB), `tool_die` (the process ends), `kill_worker` (the
worker that runs the task is killed), `verify_hang`, `verify_500`, `verify_large`, `verify_text` (no JSON),
`verify_nothing` (no reward). `GET /sessions` says how many sessions are open;
`POST /forget` forgets them, as a server does after its own time limit.

`POST /run` is an agent server, whose model server is at `--gymweb`. Its fault is `run_500`.
"""

import argparse
import asyncio
import os
import secrets
import signal
from typing import Any

import aiohttp
import orjson
import psycopg
import uvloop
from aiohttp import web

LARGE = 50 * 1024**2
RUNNER = """
    SELECT w.pid FROM rollouts_worker w JOIN rollouts_rollout r ON r.lease = w.id JOIN tasks_task t ON t.id = r.task_id
    WHERE r.status = 'running' AND t.index = %s
"""


def make_app(options: argparse.Namespace) -> web.Application:
    app = web.Application(client_max_size=64 * 1024**2)
    opened: set[str] = set()

    async def seed(request: web.Request) -> web.StreamResponse:
        row = orjson.loads(await request.read())
        if row["fault"] == "seed_500":
            return _json({"detail": "no session today"}, status=500)
        session = secrets.token_hex(8)
        opened.add(session)
        reply = _json({"supports_explicit_close": options.closes})
        # The session is nothing but what its calls need to know.
        reply.set_cookie("task", f"{row['number']}.{row['fault']}")
        reply.set_cookie("session", session)
        return reply

    async def close(request: web.Request) -> web.StreamResponse:
        opened.discard(request.cookies["session"])
        return _json({})

    async def forget(request: web.Request) -> web.StreamResponse:
        opened.clear()
        return _json({})

    async def count(request: web.Request) -> web.StreamResponse:
        return _json({"open": len(opened)})

    async def tool(request: web.Request) -> web.StreamResponse:
        await request.read()
        number, _, fault = request.cookies["task"].partition(".")
        if fault == "kill_worker":
            await asyncio.sleep(options.tool_ms / 1000)
            await asyncio.to_thread(kill_worker, options.database, int(number))
            await asyncio.Event().wait()
        return await _misbehave(request, fault, "tool", options.tool_ms) or _json({"city": "Paris", "cold": True})

    async def verify(request: web.Request) -> web.StreamResponse:
        row = orjson.loads(await request.read())
        return await _misbehave(request, row["fault"], "verify", options.verify_ms) or _json({"reward": 1.0})

    async def run(request: web.Request) -> web.StreamResponse:
        row = orjson.loads(await request.read())
        if row["fault"] == "run_500":
            return _json({"detail": "no agent today"}, status=500)
        asked = {"model": "policy_model", "input": row["responses_create_params"]["input"]}
        url = f"{options.gymweb}/ng-rollout/{row['_ng_rollout_id']}/v1/responses"
        headers = {"Authorization": "Bearer none"}
        async with aiohttp.ClientSession() as session, session.post(url, json=asked, headers=headers) as reply:
            return _json({**row, "response": await reply.json(), "reward": 1.0}, status=reply.status)

    app.router.add_post("/run", run)
    app.router.add_post("/seed_session", seed)
    app.router.add_post("/verify", verify)
    app.router.add_post("/close", close)
    app.router.add_post("/forget", forget)
    app.router.add_get("/sessions", count)
    app.router.add_post("/{tool}", tool)
    return app


async def _misbehave(request: web.Request, fault: str, call: str, milliseconds: float) -> web.StreamResponse | None:
    """The call's latency, and then the fault's answer where the fault is of this call."""
    if milliseconds:
        await asyncio.sleep(milliseconds / 1000)
    kind = fault.removeprefix(f"{call}_")
    if kind == fault:
        return None
    if kind == "die":
        os._exit(1)
    if kind == "hang":
        await asyncio.Event().wait()
    if kind == "large":
        return await _pour(request)
    if kind == "text":
        return web.Response(text="{not JSON", content_type="application/json")
    return _json({"fault": kind}, status=int(kind) if kind.isdigit() else 200)


async def _pour(request: web.Request) -> web.StreamResponse:
    """50 MB without saying so before."""
    reply = web.StreamResponse(headers={"Content-Type": "application/json"})
    reply.enable_chunked_encoding()
    await reply.prepare(request)
    piece = b" " * 65_536
    for _ in range(LARGE // len(piece)):
        await reply.write(piece)
    await reply.write_eof()
    return reply


def kill_worker(database: str, number: int) -> None:
    """End, without any farewell, the worker that runs this task."""
    with psycopg.connect(database) as connection:
        for (pid,) in connection.execute(RUNNER, [number]).fetchall():
            os.kill(pid, signal.SIGKILL)


def _json(value: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tool-ms", type=float, default=0.0, help="latency of a tool call")
    parser.add_argument("--verify-ms", type=float, default=0.0, help="latency of a verification")
    parser.add_argument("--closes", action="store_true", help="sessions are closed with POST /close, not forgotten")
    parser.add_argument("--gymweb", default="", help="where an agent server finds its model")
    parser.add_argument("--database", default="", help="where `kill_worker` looks up the worker")
    options = parser.parse_args()
    uvloop.install()
    web.run_app(
        make_app(options),
        host="127.0.0.1",
        port=options.port,
        print=None,
        access_log=None,
        backlog=4096,
        handler_cancellation=True,
        shutdown_timeout=0.1,
    )


if __name__ == "__main__":
    main()
