"""Replies whose tokens are left out, called by an agent through the capturing endpoint on every wire."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from tests.capture.test_external_agents import client_of, ended, plan, take
from tests.clients.site import Site
from tests.deadlines import DEADLINE
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.slow
Parts = list[tuple[str, list[int], list[Any]]]
PARTIAL: Parts = [("R=", [10, 11], [-0.5, -0.25]), ("1", [], [])]
NOT_FINITE: Parts = [("R=", [10, 11], [-0.5, float("nan")]), ("1", [12], [-0.5])]
WHOLE: Parts = [("R=", [10, 11], [-0.5, -0.25]), ("1", [12], [-0.5])]


def _choice(parts: Parts) -> dict[str, Any]:
    ids = [one for part in parts for one in part[1]]
    content = [{"token": "t", "logprob": one} for part in parts for one in part[2]]
    return {"index": 0, "finish_reason": None, "token_ids": ids, "logprobs": {"content": content} if content else None}


@asynccontextmanager
async def model(parts: Parts) -> AsyncIterator[str]:
    """A server that answers R=1 with these ids and log probabilities, streamed if it is asked to."""
    head = {"id": "c", "model": "m", "prompt_token_ids": [1, 2]}
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}

    async def answer(request: web.Request) -> web.StreamResponse:
        if not (await request.json()).get("stream"):
            message = {"role": "assistant", "content": "".join(part[0] for part in parts)}
            whole = {**_choice(parts), "message": message, "finish_reason": "stop"}
            return web.json_response({**head, "choices": [whole], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunks = [{**head, "choices": [{**_choice([part]), "delta": {"content": part[0]}}]} for part in parts]
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({**head, "choices": [], "usage": usage})
        for chunk in chunks:
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def ask(offer: dict[str, Any], wire: str) -> str:
    """Return the text that the agent gets."""
    messages: list[Any] = [{"role": "user", "content": "What is R?"}]
    if wire == "messages":
        given = {"api_key": offer["api_key"], "base_url": offer["anthropic_base_url"]}
        async with anthropic.AsyncAnthropic(**given, max_retries=0, timeout=DEADLINE) as claude:
            message = await claude.messages.create(model="m", max_tokens=64, messages=messages)
            return "".join(getattr(block, "text", "") for block in message.content)
    async with client_of(offer) as client:
        if wire == "responses":
            return (await client.responses.create(model="m", input="What is R?")).output_text
        if wire == "chat":
            reply = await client.chat.completions.create(model="m", messages=messages)
            return reply.choices[0].message.content or ""
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


@pytest.mark.parametrize(
    ("parts", "note"), [(PARTIAL, "usage_differs"), (NOT_FINITE, "logprob_not_finite"), (WHOLE, "")]
)
@pytest.mark.parametrize("wire", ["chat", "chat, streamed", "responses", "messages"])
async def test_the_agent_gets_the_reply_and_the_trace_says_why_it_has_no_tokens(
    site: Site, wire: str, parts: Parts, note: str
) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, model(parts) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url, "capture_tokens": True}))
        assert await ask(offer, wire) == "R=1"
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        [call] = [event["event"] for event in events if event["kind"] == "model_call"]
        assert (row["status"], row["error_kind"], call.get("tokens_note", "")) == ("completed", "", note)
        tokens = await gym.request("GET", f"rollouts/{offer['rollout']}/tokens/")
        assert [segment["input_ids"] for segment in tokens["segments"]] == ([] if note else [[1, 2, 10, 11, 12]])
