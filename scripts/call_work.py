"""Work of the benchmark `calls`: small operations that every rollout or request repeats."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from yarl import URL

from apps.accounts.request_limits import Limiter
from apps.gym.calls.http_client import HttpClient
from apps.gym.redaction.redactor import Redactor
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.wires.chat_stream import join_chat_stream
from apps.rollouts.engine.trace_redaction import clean_batch
from scripts.model_process import mock_model

CHUNKS = 200_000
CALLS = 5_000
EVENTS = 5_000
AT_ONCE = 64
"""Concurrent HTTP calls, as of many rollouts in one worker."""
_ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}
_NAMES_A_CALL = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}'
_TEXT = b'{"choices":[{"index":0,"delta":{"content":"abcdefghijklmnopqrstuvwxy"}}]}'
_ARGUMENTS = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1234567890"}}]}}]}'
_REQUEST = b'{"model":"mock","messages":[{"role":"user","content":"Compute 6 * 7."}]}'
_JSON = {"Content-Type": "application/json"}
_STOP = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'


def measure_calls() -> dict[str, Any]:
    """Return CPU times.

    Seconds of this process for a stream of 200,000 chunks, and microseconds of a call, of a request, of an event that
    is searched for credentials, and of an HTTP call with our client and with aiohttp.
    """
    text, arguments = _stream(_TEXT), _stream(_NAMES_A_CALL, _ARGUMENTS)
    return {
        "chunks": CHUNKS,
        "text_stream_s": round(_best(lambda: join_chat_stream(text)), 3),
        "arguments_stream_s": round(_best(lambda: join_chat_stream(arguments)), 3),
        "calls": CALLS,
        "adapter_us": round(_best(lambda: asyncio.run(_call_adapter())) / (2 * CALLS) * 1e6, 1),
        "rate_limit_us": round(_best(_count_requests) / CALLS * 1e6, 1),
        "redaction_us": round(_best(_redact_events) / EVENTS * 1e6, 2),
        **_measure_http(),
    }


def _best(work: Callable[[], object]) -> float:
    """Return the minimum CPU seconds of three runs."""
    took = []
    for _ in range(3):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def _stream(*chunks: bytes) -> bytes:
    """Return a stream of these chunks, with 200,000 copies of the last."""
    return b"".join(b"data: %b\n\n" % chunk for chunk in [*chunks[:-1], *chunks[-1:] * CHUNKS, _STOP, b"[DONE]"])


async def _call_adapter() -> None:
    session = await InProcessServer("exact_match", name="exact_match").seed_session(_ROW, seed=7)
    for _ in range(CALLS):
        await session.list_tools()
        await session.respond([])


def _count_requests() -> None:
    limiter, caller = Limiter("caller"), secrets.token_hex()
    for _ in range(CALLS):
        limiter.take(caller, 6000)


def _redact_events() -> None:
    payload = json.dumps({"kind": "tool_output", "output": "The parcel is in Delft. " * 20})
    events = [(1, 1, seq, "tool_output", payload, None) for seq in range(250)]
    redactor = Redactor()
    for _ in range(EVENTS // len(events)):
        clean_batch(events, (), redactor, {})


def _measure_http() -> dict[str, float]:
    with mock_model("--tool-calls", 0) as port:
        url = URL(f"http://127.0.0.1:{port}/v1/chat/completions")
        ours = _best(lambda: asyncio.run(_call_over_http(url)))
        theirs = _best(lambda: asyncio.run(_call_with_aiohttp(url)))
    return {"http_us": round(ours / CALLS * 1e6, 1), "aiohttp_us": round(theirs / CALLS * 1e6, 1)}


async def _call_over_http(url: URL) -> None:
    client = HttpClient(_resolve)

    async def call() -> None:
        reply = await client.send("POST", url, headers=_JSON, body=_REQUEST, connect_timeout=5.0)
        json.loads(reply.take())

    await _call_at_once(call)
    await client.close()


async def _call_with_aiohttp(url: URL) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call() -> None:
            async with session.post(url, data=_REQUEST, headers=_JSON) as reply:
                json.loads(await reply.read())

        await _call_at_once(call)


async def _call_at_once(call: Callable[[], Any]) -> None:
    async def call_often() -> None:
        for _ in range(CALLS // AT_ONCE):
            await call()

    await asyncio.gather(*(call_often() for _ in range(AT_ONCE)))


async def _resolve(host: str, _port: int) -> list[str]:
    return [host]
