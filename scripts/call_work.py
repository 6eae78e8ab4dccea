"""Work of the benchmark `calls`: small operations that every rollout or request repeats."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

from apps.accounts.request_limits import Limiter
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.wires.chat_stream import join_chat_stream

CHUNKS = 200_000
CALLS = 5_000
_ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}
_NAMES_A_CALL = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}'
_TEXT = b'{"choices":[{"index":0,"delta":{"content":"abcdefghijklmnopqrstuvwxy"}}]}'
_ARGUMENTS = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1234567890"}}]}}]}'
_STOP = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'


def measure_calls() -> dict[str, Any]:
    """Return CPU times.

    Seconds of this process for a stream of 200,000 chunks, and microseconds of a call and of a request.
    """
    text, arguments = _stream(_TEXT), _stream(_NAMES_A_CALL, _ARGUMENTS)
    return {
        "chunks": CHUNKS,
        "text_stream_s": round(_best(lambda: join_chat_stream(text)), 3),
        "arguments_stream_s": round(_best(lambda: join_chat_stream(arguments)), 3),
        "calls": CALLS,
        "adapter_us": round(_best(lambda: asyncio.run(_call_adapter())) / (2 * CALLS) * 1e6, 1),
        "rate_limit_us": round(_best(_count_requests) / CALLS * 1e6, 1),
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
