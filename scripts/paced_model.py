#!/usr/bin/env python
"""A chat model that repeats the last message of the request, streamed or whole, to test and measure captured calls.

A stream has `--events` text deltas, `--pause-ms` apart. Each begins with the time at which it was sent, in seconds of
the system-wide monotonic clock; the first goes on with the repeated text. While the file `--hold` exists, the end of
every reply waits. With `--throttle SECONDS` all calls get 429 during so many seconds after the first one.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def make_app(options: argparse.Namespace) -> web.Application:
    app = web.Application(client_max_size=64 * 1024**2)
    began: list[float] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        asked = orjson.loads(await request.read())
        began.append(time.monotonic())
        if time.monotonic() - began[0] < options.throttle:
            error = {"error": {"message": "rate limit reached", "code": "rate_limit_exceeded"}}
            return web.json_response(error, status=429, headers={"Retry-After": "1"})
        said = str(asked["messages"][-1]["content"])
        if asked.get("stream"):
            return await _stream(request, said, options)
        await _hold(options)
        message = {"role": "assistant", "content": said + " " * max(0, options.reply_bytes - len(said))}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "model": "paced", "choices": [choice], "usage": USAGE}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def count(request: web.Request) -> web.StreamResponse:
        return web.json_response({"calls": len(began)})

    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/calls", count)
    return app


async def _stream(request: web.Request, said: str, options: argparse.Namespace) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(options.events):
        if number:
            await asyncio.sleep(options.pause_ms / 1000)
        await response.write(_chunk({"content": f"{time.monotonic():.6f} {'' if number else said} "}))
        if number == 1:
            await _hold(options)
    await response.write(_chunk({}, "stop"))
    await response.write(b"data: " + orjson.dumps({"id": "c", "choices": [], "usage": USAGE}) + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "model": "paced", "choices": [choice]}) + b"\n\n"


async def _hold(options: argparse.Namespace) -> None:
    while options.hold and await asyncio.to_thread(Path(options.hold).exists):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--events", type=int, default=4, help="text deltas of a stream; default: %(default)s")
    parser.add_argument("--pause-ms", type=float, default=10.0, help="between two of them; default: %(default)s")
    parser.add_argument("--reply-bytes", type=int, default=0, help="least size of a reply that is not streamed")
    parser.add_argument("--hold", default="", metavar="PATH", help="no reply ends while this file exists")
    parser.add_argument("--throttle", type=float, default=0.0, metavar="S", help="seconds in which all calls get 429")
    options = parser.parse_args()
    sys.stdout.flush()
    uvloop.install()
    web.run_app(
        make_app(options), host="127.0.0.1", port=options.port, print=None, access_log=None, handler_cancellation=True
    )


if __name__ == "__main__":
    main()
