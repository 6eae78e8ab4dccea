"""Agents that finish although the model failed: the rollout has no reward, but the error of the model."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import openai
from aiohttp import web
from gymweb_client import AsyncGymWeb

from tests.capture.test_external_agents import client_of, ended, paced_model, plan, pytestmark, take  # noqa: F401
from tests.clients.site import Site
from tests.rollouts.work import serve_chat

ASK: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]


@asynccontextmanager
async def model(answer: Callable[[int], dict[str, Any] | str]) -> AsyncIterator[str]:
    """A model whose reply to its n-th call is a message, or a 400 with a text, or a 500 without one."""
    count = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        reply = answer(count)
        if reply == "":
            return web.Response(status=500)
        if isinstance(reply, str):
            return web.json_response({"error": {"message": reply, "type": "invalid_request_error"}}, status=400)
        choice = {"index": 0, "message": {"role": "assistant", **reply}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "model": "m", "choices": [choice]})

    runner, port = await serve_chat(handle)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def run(site: Site, url: str, calls: int, *, stream: bool = False, **finish: Any) -> tuple[Any, list[Any]]:
    """Let an agent make calls, ignore their errors and finish. Return the rollout and the events of its trace."""
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}, max_attempts=1))
        async with client_of(offer) as client:
            for number in range(calls):
                messages = [*ASK, {"role": "user", "content": str(number)}]
                with suppress(openai.APIError, httpx2.TransportError):
                    reply = await client.chat.completions.create(model="m", messages=messages, stream=stream)
                    if stream:
                        [chunk async for chunk in reply]
        body = {"attempt": offer["attempt"], **finish}
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", body)
        row = await ended(gym, offer["rollout"])
        return row, [event["event"] for event in await gym.trace(row["id"])]


def outcome(row: Any) -> tuple[Any, ...]:
    return row["status"], row["error_kind"], row["reward"], row["stop_reason"]


POLICY_ERROR = ("failed", "policy_error", None, "")


async def test_a_stream_that_broke_is_no_reward_and_its_text_is_kept(site: Site) -> None:
    async with paced_model(0.05, [], breaks=True) as url:
        row, events = await run(site, url, 1, stream=True)
    assert outcome(row) == POLICY_ERROR
    end = next(event for event in events if event["type"] == "agent_end")
    [failed] = end["failed_calls"]
    assert (end["unserved"], failed["call"], failed["kind"]) == ([1], 1, "policy_error")
    assert failed["received"] == 'I look it up.\nsearch\n{"q": "cats"}'
    assert row["turns"] == 0


async def test_a_model_that_refuses_all_calls_is_quoted(site: Site) -> None:
    async with model(lambda _: "no such adapter") as url:
        row, _ = await run(site, url, 2, answer="I could not reach the model.")
    assert outcome(row) == POLICY_ERROR
    assert "400: no such adapter" in row["error_message"]


async def test_a_call_that_succeeds_after_a_failure_is_verified(site: Site) -> None:
    async with model(lambda call: {"content": "4"} if call > 1 else "busy") as url:
        row, _ = await run(site, url, 2)
    assert (outcome(row), row["turns"]) == (("completed", "", 1.0, "answered"), 1)


async def test_calls_that_fail_after_their_retries_count_as_retried_calls(site: Site) -> None:
    async with model(lambda call: {"content": "4"} if call > 4 else "") as url:
        row, _ = await run(site, url, 2)
    assert (row["status"], row["retried_calls"]) == ("completed", 1)
    async with model(lambda call: "") as url:
        row, _ = await run(site, url, 1)
    assert (outcome(row), row["retried_calls"]) == (POLICY_ERROR, 1)


async def test_an_answer_counts_only_if_a_reply_has_it(site: Site) -> None:
    async with model(lambda call: {"content": "It is 4"} if call == 1 else "busy") as url:
        row, _ = await run(site, url, 2, answer="4")
    assert outcome(row) == ("completed", "", 1.0, "answered")
    for finish in ({"answer": "I do not know."}, {}):
        async with model(lambda call: {"content": "It is 4"} if call == 1 else "busy") as url:
            row, _ = await run(site, url, 2, **finish)
        assert outcome(row) == POLICY_ERROR


async def test_an_agent_whose_requests_are_all_invalid_failed_itself(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, max_attempts=1))
        async with client_of(offer) as client:
            with suppress(openai.BadRequestError):
                await client.chat.completions.create(model="m", messages=[])
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
    assert outcome(row) == ("failed", "agent_error", None, "")
    assert "messages" in row["error_message"], row["error_message"]
    assert json.dumps(row).count(offer["api_key"]) == 0
