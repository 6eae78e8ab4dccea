#!/usr/bin/env python
"""A policy model and a resource server that answer by rule, for tests and benchmarks: both wires, no LLM.

The reply depends on how many tool outputs the request already holds: fewer than `--tool-calls` gives one more call,
otherwise the final text. Everything under /environment/ answers as a resource server whose reward is 1.0.

With `--tokens N` a chat reply has N token ids and logprobs in the form of vLLM, where the request asks for them with
`return_token_ids`; each prompt's ids go on from those of the turn before.

With `--verdict JSON` it judges: whoever asks for structured output of the name "verdict" gets that object with the mark
of the question in it, or that text where it is no object.

With `--window N` it takes N calls in each second of the clock and answers the others 429 with `Retry-After: 1`. With
`--closed-for S` it answers only that in the first S seconds after its first call. `GET /throttling` counts both kinds.

Faults are drawn for each call of the model: `--fail-429`, `--fail-500` and `--hang` are probabilities. A request for
the model `mock-FAULT` gets a reply with that fault (see FAULTS), a final text and no calls.

With `--reply-bytes N` every final text over chat is repeated until the reply has about N bytes. It is sent as fast as
the caller reads, with a Content-Length unless `--chunked` is given.
"""

import argparse
import asyncio
import functools
import itertools
import random
import re
import struct
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web

_ids = itertools.count()
FAULTS = ("streamed", "cut-once", "cut", "large", "finish", "usage", "fields")
"""Sent as a stream over chat; cut mid-way, the first time that a conversation is asked for or always; a text of 5 MB; a
reason for its end that nobody knows; without usage; with fields that nobody knows, everywhere."""
LARGE = 5 * 1024 * 1024
PIECE = 256 * 1024
MARK = re.compile(r"<task-([0-9a-f]{8})>")
USAGE = {"input": 120, "output": 40}
TOOL_TOKENS = 20


@functools.cache
def chat_tokens(outputs: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a reply and its choice have besides, encoded once: it costs the mock next to nothing."""
    start = USAGE["input"] + outputs * (count + TOOL_TOKENS)
    ids = [(31 * position + 7) % 150_000 for position in range(start + count)]
    draw = random.Random(outputs)
    # Computed as float32 by a server, and written with all the digits of a double.
    logprobs = [struct.unpack("f", struct.pack("f", -draw.expovariate(2.0)))[0] for _ in range(count)]
    content = [
        {"token": "tok", "logprob": logprob, "bytes": [116, 111, 107], "top_logprobs": []} for logprob in logprobs
    ]
    usage = {"prompt_tokens": start, "completion_tokens": count, "total_tokens": start + count}
    of_choice = {
        "token_ids": orjson.Fragment(orjson.dumps(ids[start:])),
        "logprobs": orjson.Fragment(orjson.dumps({"content": content})),
    }
    return {"prompt_token_ids": orjson.Fragment(orjson.dumps(ids[:start])), "usage": usage}, of_choice


def chat_reply(outputs: int, options: argparse.Namespace, *, with_tokens: bool = False) -> dict[str, Any]:
    number = next(_ids)
    calls = outputs < options.tool_calls
    reply: dict[str, Any] = {"role": "assistant", "content": None if calls else options.final}
    if calls:
        function = {"name": options.tool_name, "arguments": options.tool_args}
        reply["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    of_reply, of_choice = chat_tokens(outputs, options.tokens) if with_tokens else ({}, {})
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "message": reply, "finish_reason": "tool_calls" if calls else "stop", **of_choice}],
        "usage": {
            "prompt_tokens": USAGE["input"],
            "completion_tokens": USAGE["output"],
            "total_tokens": USAGE["input"] + USAGE["output"],
        },
        **of_reply,
    }


def judges(text: str, options: argparse.Namespace) -> argparse.Namespace:
    """The options for a question to a judge: no tool calls, and the verdict as the final text."""
    mark = MARK.search(text)
    try:
        verdict = orjson.loads(options.verdict)
    except ValueError:
        final = options.verdict
    else:
        final = orjson.dumps({"mark": mark[1] if mark else "", "explanation": "By rule.", **verdict}).decode()
    return argparse.Namespace(**{**vars(options), "tool_calls": 0, "final": final})


def responses_reply(outputs: int, options: argparse.Namespace) -> dict[str, Any]:
    number = next(_ids)
    item: dict[str, Any]
    if outputs < options.tool_calls:
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": options.tool_name,
            "arguments": options.tool_args,
            "status": "completed",
        }
    else:
        item = {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": options.final, "annotations": []}],
        }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "mock",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": USAGE["input"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": USAGE["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": USAGE["input"] + USAGE["output"],
        },
    }


def spoil(reply: dict[str, Any], fault: str, options: argparse.Namespace) -> dict[str, Any]:
    """A whole reply of either wire with one fault in what it says."""
    is_chat = "choices" in reply
    said = reply["choices"][0]["message"] if is_chat else reply["output"][0]["content"][0]
    if fault == "large":
        said["content" if is_chat else "text"] = options.final + " " * (LARGE - len(options.final))
    elif fault == "finish" and is_chat:
        reply["choices"][0]["finish_reason"] = "eos_token"
    elif fault == "finish":
        reply |= {"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}}
    elif fault == "usage":
        del reply["usage"]
    elif fault == "fields":
        odd = {"x_new": {"deep": [1, None, {"a": "b"}]}, "x_more": "text"}
        reply |= odd
        said |= odd
        reply["choices" if is_chat else "output"][0] |= odd
        reply["usage"] |= odd
    return reply


async def send_cut(request: web.Request, body: bytes, content_type: str) -> web.StreamResponse:
    """Half of it, and then no connection."""
    response = web.StreamResponse(headers={"Content-Type": content_type, "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response


async def send_long(request: web.Request, reply: dict[str, Any], options: argparse.Namespace) -> web.StreamResponse:
    """Send a chat reply whose text is repeated to `--reply-bytes`, without ever holding the whole reply."""
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


def as_stream(reply: dict[str, Any]) -> bytes:
    """A chat reply of text alone as server-sent events, one for each word."""
    head = {key: reply[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    words = re.split(r"(?<= )", reply["choices"][0]["message"]["content"])
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}, "finish_reason": None} for word in words]
    choices.append({"index": 0, "delta": {}, "finish_reason": reply["choices"][0]["finish_reason"]})
    chunks = [{**head, "choices": [choice]} for choice in choices] + [{**head, "choices": [], "usage": reply["usage"]}]
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def make_app(options: argparse.Namespace) -> web.Application:
    app = web.Application(client_max_size=64 * 1024**2)
    draw = random.Random(options.seed).random
    window = Window(options.window, options.closed_for)

    async def delay_or_fail() -> web.Response | None:
        """The latency of a model, and now and then one of its faults instead of a reply."""
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
            return _json({"error": {"message": "mock: too many requests"}}, status=429)
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
        if failure := await delay_or_fail():
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


async def models(request: web.Request) -> web.Response:
    return _json({"object": "list", "data": [{"id": "mock", "object": "model"}]})


async def environment(request: web.Request) -> web.Response:
    await request.read()
    return _json({"reward": 1.0, "result": "The weather in Paris is cold."})


class Window:
    """How many calls a second are taken; 0 takes all. None is taken within `closed_for` seconds of the first."""

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
        """The counts, and the seconds from the first to the last call that was taken."""
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
    parser.add_argument("--tokens", type=int, default=0, metavar="N", help="token ids and logprobs of every chat reply")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of every call of the model")
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="up to so much more, drawn for each call")
    parser.add_argument("--reply-bytes", type=int, default=0, metavar="N", help="of every final reply over chat")
    parser.add_argument("--chunked", action="store_true", help="send these replies without a Content-Length")
    for fault in ("--fail-429", "--fail-500", "--hang"):
        parser.add_argument(fault, type=float, default=0.0, metavar="P", help="probability, 0 to 1")
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
        handler_cancellation=True,  # a call that hangs ends with its caller
        shutdown_timeout=0.1,
    )


if __name__ == "__main__":
    main()
