#!/usr/bin/env python
"""A rule-based policy model and resource server for tests and benchmarks, with both OpenAI APIs.

The reply depends on the number of tool outputs in the request: below `--tool-calls` it is another call, otherwise the
final text. Everything under /environment/ is a resource server whose reward is 1.0.

With `--tokens N`, a chat reply has N token IDs and logprobs in vLLM's form, if the request has `return_token_ids`. The
ids of each prompt continue those of the previous turn.

With `--verdict JSON` it is a judge: requests for structured output named "verdict" get this object with the mark of the
question, or the text if it is not an object.

With `--window N` it accepts N calls per second and answers the others with 429 and `Retry-After: 1`. With `--closed-for
S` it only answers this during S seconds after its first call. `GET /throttling` returns counts of both.

Faults are drawn for each call of the model: `--fail-429`, `--fail-500` and `--hang` are probabilities. A request for
the model `mock-FAULT` gets a reply with that fault (see FAULTS), a final text and no calls.

With `--reply-bytes N` every final text over chat is repeated until the reply has about N bytes. It is sent as fast as
the caller reads, with a Content-Length unless `--chunked` is given.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.mock_replies import FAULTS, as_stream, chat_reply, judges, responses_reply, spoil

PIECE = 256 * 1024


async def send_cut(request: web.Request, body: bytes, content_type: str) -> web.StreamResponse:
    """Send half of the reply, then close the connection."""
    response = web.StreamResponse(headers={"Content-Type": content_type, "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response


async def send_long(request: web.Request, reply: dict[str, Any], options: argparse.Namespace) -> web.StreamResponse:
    """Send a chat reply whose text is repeated up to `--reply-bytes`, without holding all of it in memory."""
    text = orjson.dumps(options.final + " ")[1:-1]
    reply["choices"][0]["message"]["content"] = "@"
    head, tail = orjson.dumps(reply).split(b"@")
    piece = text * (PIECE // len(text))
    pieces = options.reply_bytes // len(piece)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    if options.chunked:
        response.enable_chunked_encoding()
    else:
        response.content_length = len(head) + pieces * len(piece) + len(tail)
    await response.prepare(request)
    for part in itertools.chain([head], itertools.repeat(piece, pieces), [tail]):
        await response.write(part)
    await response.write_eof()
    return response


def make_app(options: argparse.Namespace) -> web.Application:
    app = web.Application(client_max_size=64 * 1024**2)
    draw = random.Random(options.seed).random
    window = Window(options.window, options.closed_for)

    async def delay_or_fail() -> web.Response | None:
        """Wait for the model's latency, and sometimes return a fault instead of a reply."""
        if not window.takes(time.time()):
            error = {"message": "mock: rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
            return _json({"error": error}, status=429, headers={"Retry-After": "1"})
        fault = draw() if options.faulty else 1.0
        if fault < options.hang:
            await asyncio.Event().wait()
        while options.hold and await asyncio.to_thread(Path(options.hold).exists):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if options.latency_ms or options.jitter_ms:
            await asyncio.sleep((options.latency_ms + options.jitter_ms * draw()) / 1000)
        if fault < options.hang + options.fail_429:
            return _json({"error": {"message": "mock: busy"}}, status=429, headers={"Retry-After": "1"})
        if fault < options.hang + options.fail_429 + options.fail_500:
            return _json({"error": {"message": "mock: internal error"}}, status=500)
        return None

    once: set[str] = set()

    async def reply_badly(request: web.Request, fault: str, reply: dict[str, Any]) -> web.StreamResponse:
        session = request.path + request.headers.get("X-Session-ID", "")
        if fault == "cut-once" and session in once:
            fault = ""
        once.add(session)
        is_stream = "choices" in reply and fault in ("streamed", "cut", "cut-once")
        whole = spoil(reply, fault, options)
        body = as_stream(whole) if is_stream else orjson.dumps(whole)
        content_type = "text/event-stream" if is_stream else "application/json"
        if fault in ("cut", "cut-once"):
            return await send_cut(request, body, content_type)
        return web.Response(body=body, content_type=content_type)

    def fault_of(asked: dict[str, Any]) -> str:
        fault = str(asked.get("model")).removeprefix("mock-")
        return fault if fault in FAULTS else ""

    async def chat(request: web.Request) -> web.StreamResponse:
        if failure := await delay_or_fail() or await _fail_on(options.fail_on, request):
            return failure
        asked = orjson.loads(await request.read())
        if fault := fault_of(asked):
            return await reply_badly(request, fault, chat_reply(options.tool_calls, options))
        outputs = sum(message["role"] == "tool" for message in asked["messages"])
        form = asked.get("response_format")
        if options.verdict and form and form["json_schema"]["name"] == "verdict":
            return _json(chat_reply(outputs, judges(asked["messages"][1]["content"], options)))
        if options.reply_bytes and outputs >= options.tool_calls:
            return await send_long(request, chat_reply(outputs, options), options)
        with_tokens = options.tokens > 0 and asked.get("return_token_ids") is True
        return _json(chat_reply(outputs, options, with_tokens=with_tokens))

    async def responses(request: web.Request) -> web.StreamResponse:
        if failure := await delay_or_fail():
            return failure
        asked = orjson.loads(await request.read())
        if fault := fault_of(asked):
            return await reply_badly(request, fault, responses_reply(options.tool_calls, options))
        items, form = asked["input"], (asked.get("text") or {}).get("format")
        if options.verdict and form and form.get("name") == "verdict":
            return _json(responses_reply(0, judges(orjson.dumps(items[1]).decode(), options)))
        outputs = sum(item.get("type") == "function_call_output" for item in items if isinstance(item, dict))
        return _json(responses_reply(outputs, options))

    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/responses", responses)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/throttling", window.tell)
    app.router.add_post("/environment/{name}", environment)
    return app


async def _fail_on(text: str, request: web.Request) -> web.Response | None:
    if not text or text.encode() not in await request.read():
        return None
    return _json({"error": {"message": "mock: internal error"}}, status=500)


async def models(request: web.Request) -> web.Response:
    return _json({"object": "list", "data": [{"id": "mock", "object": "model"}]})


async def environment(request: web.Request) -> web.Response:
    await request.read()
    return _json({"reward": 1.0, "result": "The weather in Paris is cold."})


class Window:
    """Calls accepted per second; 0 accepts all. During `closed_for` seconds after the first call, none is accepted."""

    def __init__(self, number: int, closed_for: float) -> None:
        self.number = number
        self.closed_for = closed_for
        self.began = 0.0
        self.taken_at: list[float] = []
        self.refused = 0

    def takes(self, now: float) -> bool:
        self.began = self.began or now
        used = 0
        if self.number:
            used = sum(int(at) == int(now) for at in self.taken_at[-self.number :])
        if now - self.began < self.closed_for or (self.number and used >= self.number):
            self.refused += 1
            return False
        self.taken_at.append(now)
        return True

    async def tell(self, request: web.Request) -> web.Response:
        """Return the counts, and the seconds from the first to the last accepted call."""
        seconds = self.taken_at[-1] - self.taken_at[0] if self.taken_at else 0.0
        return _json({"taken": len(self.taken_at), "refused": self.refused, "seconds": seconds})


def _json(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json", headers=headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--tool-calls", type=int, default=2)
    parser.add_argument("--tool-name", default="get_weather")
    parser.add_argument("--tool-args", default='{"city": "Paris"}')
    parser.add_argument("--final", default="The weather in Paris is cold.")
    parser.add_argument("--verdict", default="", metavar="JSON", help='what it says as a judge, e.g. {"score": 8}')
    parser.add_argument("--tokens", type=int, default=0, metavar="N", help="token IDs and logprobs of every chat reply")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of every call of the model")
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="up to so much more, drawn for each call")
    parser.add_argument("--reply-bytes", type=int, default=0, metavar="N", help="of every final reply over chat")
    parser.add_argument("--chunked", action="store_true", help="send these replies without a Content-Length")
    for fault in ("--fail-429", "--fail-500", "--hang"):
        parser.add_argument(fault, type=float, default=0.0, metavar="P", help="probability, 0 to 1")
    parser.add_argument("--fail-on", default="", metavar="TEXT", help="answer 500 to chat requests with this text")
    parser.add_argument("--hold", default="", metavar="PATH", help="answer no call while this file exists")
    parser.add_argument("--window", type=int, default=0, metavar="N", help="calls taken in each second; 0: all")
    parser.add_argument("--closed-for", type=float, default=0.0, metavar="S", help="seconds in which none is taken")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn")
    options = parser.parse_args()
    options.faulty = options.fail_429 or options.fail_500 or options.hang
    uvloop.install()
    print(f"mock model on {options.host}:{options.port}", flush=True)
    web.run_app(
        make_app(options),
        host=options.host,
        port=options.port,
        print=None,
        access_log=None,
        backlog=4096,
        handler_cancellation=True,  # a hanging call ends with its caller
        shutdown_timeout=0.1,
    )


if __name__ == "__main__":
    main()
