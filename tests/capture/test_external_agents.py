"""Agents that run elsewhere: they take attempts over the API and call the model at the capturing endpoint."""

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import pytest
from aiohttp import web
from gymweb_client import ApiError, AsyncGymWeb
from gymweb_client.errors import NothingQueued
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from apps.rollouts.serving.attempt_commands import MAX_WAITING
from tests.clients.site import Site, open_site
from tests.deadlines import DEADLINE
from tests.factories import make_row
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.slow


async def plan(gym: AsyncGymWeb, site: Site, *, tasks: int = 1, repeats: int = 1, **fields: Any) -> int:
    """Plan a collection of an external agent whose model answers 4. Return its id."""
    name = f"capture-{uuid.uuid4().hex[:8]}"
    rows = [make_row("What is 2 + 2?", "4", id=f"{name}-{n}") for n in range(tasks)]
    await gym.upload(name, rows, environment=fields.pop("environment", "exact_match"))
    model = {"slug": name, "name": name, "provider": "compatible", "base_url": site.model, "model_name": "mock"}
    await gym.request("POST", "policy-models/", {**model, "wire": "chat", **fields.pop("model", {})})
    agent = {"slug": name, "name": name, "kind": "external", **fields.pop("agent", {})}
    await gym.request("POST", "agents/", agent)
    planned = {"dataset": name, "agent": name, "policy_model": name, "repeats": repeats, **fields}
    collection: int = (await gym.request("POST", "collections/", planned))["id"]
    return collection


async def take(gym: AsyncGymWeb, collection: int, **fields: Any) -> Any:
    key = fields.pop("key", uuid.uuid4().hex)
    body = {"collection": collection, "wait_seconds": 20, **fields}
    return await gym.request("POST", "attempts/", body, idempotency_key=key)


def client_of(offer: dict[str, Any]) -> openai.AsyncOpenAI:
    base, key = offer["openai_base_url"], offer["api_key"]
    return openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, timeout=DEADLINE)


async def ended(gym: AsyncGymWeb, rollout: int) -> Any:
    while (row := await gym.request("GET", f"rollouts/{rollout}/"))["status"] in {"queued", "running"}:
        await asyncio.sleep(0.1)
    return row


async def test_an_agent_takes_a_task_calls_the_model_and_gets_a_reward(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site)
        offer = await take(gym, collection)
        assert [item["content"] for item in offer["input"]] == ["What is 2 + 2?"]
        assert "expected_answer" not in str(offer)
        messages: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]
        async with client_of(offer) as client:
            reply = await client.chat.completions.create(model="any-name", messages=messages)
        assert reply.model == "any-name"
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 1)
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        assert [event["kind"] for event in events] == [
            "session",
            "prompt",
            "model_call",
            "agent_end",
            "verification",
        ]
        call = events[2]["event"]
        assert (call["wire"], call["root_reason"], call["items_in"][0]["content"]) == (
            "chat",
            "first",
            "What is 2 + 2?",
        )
        assert offer["api_key"] not in str(events)


async def test_streams_reach_the_agent_and_say_their_usage(site: Site) -> None:
    assert (await take_and_stream(site))["openai_base_url"].startswith(f"{site.base}/capture/")


async def test_agents_call_the_worker_itself_where_that_is_allowed(tmp_path: Path) -> None:
    with open_site(tmp_path, GYMWEB_CAPTURE_DIRECT="1") as direct:
        offer = await take_and_stream(direct)
        assert offer["mcp_url"].startswith("http://127.0.0.1:")
        assert not offer["mcp_url"].startswith(direct.base)
        await stream_over_http_1_0(direct)


async def stream_over_http_1_0(direct: Site) -> None:
    """HTTP/1.0 has no chunks: the events come without sizes between them."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Find cats."}]})
    async with AsyncGymWeb(direct.base, direct.key) as gym, paced_model(0.05, []) as model:
        offer = await take(gym, await plan(gym, direct, model={"base_url": model}))
        url = httpx2.URL(f"{offer['openai_base_url']}/chat/completions")
        head = f"POST {url.path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write((head + body).encode())
        received = (await reader.read()).decode()
        writer.close()
    head, _, events = received.partition("\r\n\r\n")
    assert " 200 " in head and len(events.split()) > 4
    assert {line.partition(" ")[0] for line in events.splitlines() if line} == {"data:"}
    assert events.rstrip().endswith("data: [DONE]")


async def take_and_stream(site: Site) -> Any:
    """Take an attempt, stream a reply and finish. Return the offer."""
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site))
        async with client_of(offer) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "What is 2 + 2?"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert "4" in text
        usage = chunks[-1].usage
        assert usage is not None and usage.completion_tokens > 0
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        assert (await ended(gym, offer["rollout"]))["reward"] == 1.0
    return offer


async def test_the_first_end_counts_and_an_equal_one_gets_its_answer(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site))
        path, body = f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"], "answer": "\\boxed{4}"}
        first = await gym.request("POST", path, body)
        assert await gym.request("POST", path, body) == first
        row = await ended(gym, offer["rollout"])
        assert await gym.request("POST", path, body) == first
        for other in ({"attempt": offer["attempt"], "answer": "5"}, {**body, "attempt": 2}):
            with pytest.raises(ApiError) as refused:
                await gym.request("POST", path, other)
            assert refused.value.status == 409
        async with client_of(offer) as client:
            with pytest.raises(openai.ConflictError):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "late"}])
        assert (row["status"], row["turns"]) == ("completed", 0)


async def test_a_failed_agent_fails_its_rollout(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, max_attempts=1))
        body = {"attempt": offer["attempt"], "message": "out of ideas"}
        await gym.request("POST", f"attempts/{offer['rollout']}/fail/", body)
        row = await ended(gym, offer["rollout"])
        assert (row["status"], row["error_kind"], row["error_message"]) == ("failed", "agent_error", "out of ideas")


async def test_a_repeated_request_takes_no_second_attempt(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site, tasks=2)
        key = uuid.uuid4().hex
        first, again = await take(gym, collection, key=key), await take(gym, collection, key=key)
        assert (again["rollout"], again["api_key"]) == (first["rollout"], first["api_key"])
        other = await take(gym, collection)
        assert other["rollout"] != first["rollout"]
        assert await take(gym, collection, wait_seconds=0) is None
        with pytest.raises(ApiError) as refused:
            await gym.request("POST", "attempts/", {"collection": collection})
        assert refused.value.status == 400


async def test_a_bounded_number_of_requests_waits_for_an_attempt(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site)
        await take(gym, collection)
        began, waited = time.monotonic(), 4.0

        async def time_request() -> float:
            assert await take(gym, collection, wait_seconds=waited) is None
            return time.monotonic() - began

        took = await asyncio.gather(*(time_request() for _ in range(MAX_WAITING + 3)))

        assert sum(seconds < waited for seconds in took) == 3


async def test_calls_past_the_limit_end_the_attempt_with_its_reason(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, agent={"max_steps": 2}))
        async with client_of(offer) as client:
            for text in ("one", "two"):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            with pytest.raises(openai.BadRequestError, match="limit"):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "three"}])
        row = await ended(gym, offer["rollout"])
        assert (row["status"], row["stop_reason"], row["turns"]) == ("completed", "max_steps", 2)


async def test_secrets_are_checked_in_every_place(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, aiohttp.ClientSession() as session:
        collection = await plan(gym, site, tasks=2)
        one, two = await take(gym, collection), await take(gym, collection)
        body = {"model": "m", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}

        async def status(path: str, **headers: str) -> int:
            url = f"{site.base}/capture/{path}v1/chat/completions?beta=true"
            async with session.post(url, json=body, headers=headers) as reply:
                return reply.status

        key, other = one["api_key"], two["api_key"]
        assert await status(f"{key}/") == 200
        assert await status("", Authorization=f"Bearer {key}") == 200
        assert await status("", **{"x-api-key": key}) == 200
        assert await status(f"{key}/", Authorization="Bearer sk-of-the-client") == 200
        assert await status(f"{key}/", Authorization=f"Bearer {other}") == 401
        assert await status("") == 401
        assert await status(f"{key}x/") == 401
        assert await status("cs_999999_x/") == 409


async def test_a_marked_retry_gets_the_recorded_reply(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, aiohttp.ClientSession() as session:
        offer = await take(gym, await plan(gym, site))
        body = {"model": "m", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}

        async def call(**headers: str) -> Any:
            async with session.post(
                f"{offer['openai_base_url']}/chat/completions", json=body, headers=headers
            ) as reply:
                assert reply.status == 200, await reply.text()
                return await reply.json()

        together = await asyncio.gather(call(), call(**{"x-stainless-retry-count": "1"}))
        later = await call(**{"x-stainless-retry-count": "2"})
        assert [one["choices"] for one in together] == [later["choices"]] * 2
        await call()
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        assert row["turns"] == 2
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        calls = [event["event"] for event in events if event["kind"] == "model_call"]
        assert [call.get("retry_of", 0) for call in calls] == [0, 1]


async def test_many_attempts_at_once_keep_their_calls_apart(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site, tasks=24)

        async def attempt() -> tuple[int, str]:
            offer = await take(gym, collection)
            mark = uuid.uuid4().hex
            turn = {"role": "user", "content": mark}
            messages: list[Any] = [turn]
            async with client_of(offer) as client:
                for _ in range(3):
                    reply = await client.chat.completions.create(model="m", messages=messages)
                    messages += [reply.choices[0].message.model_dump(exclude_none=True), turn]
            await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
            return offer["rollout"], mark

        made = await asyncio.gather(*(attempt() for _ in range(24)))
        for rollout, mark in made:
            await ended(gym, rollout)
            events = (await gym.request("GET", f"rollouts/{rollout}/trace/"))["events"]
            calls = [event["event"] for event in events if event["kind"] == "model_call"]
            assert [call.get("parent", 0) for call in calls] == [0, 1, 2]
            assert all(item.get("content", mark) == mark for call in calls for item in call["items_in"])


@asynccontextmanager
async def paced_model(
    pause: float, sent: list[float], *, breaks: bool = False, call_id: str = "call_a"
) -> AsyncIterator[str]:
    """A model that streams a text, then a tool call, with pauses. `sent` gets the time of each chunk."""
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": "I look "},
        {"content": "it up."},
        {"tool_calls": [{"index": 0, "id": call_id, "function": {"name": "search", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"cats"}'}}]},
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        assert asked["stream"] is True
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta in deltas:
            sent.append(time.monotonic())
            chunk = {"id": "c", "model": "paced", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            await asyncio.sleep(pause)
        if breaks:
            assert request.transport is not None
            request.transport.abort()
            return response
        last = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        usage = {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}
        for chunk in (last, usage):
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def test_a_stream_passes_through_as_it_comes_and_is_stored_whole(site: Site) -> None:
    sent: list[float] = []
    async with AsyncGymWeb(site.base, site.key) as gym, paced_model(0.3, sent) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        messages: list[Any] = [{"role": "user", "content": "Find cats."}]
        async with client_of(offer) as client, client.chat.completions.stream(model="m", messages=messages) as stream:
            received = [time.monotonic() async for event in stream if event.type == "chunk"]
            final = await stream.get_final_completion()
        message = final.choices[0].message
        assert message.content == "I look it up."
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        assert (call.id, call.function.name, call.function.arguments) == ("call_a", "search", '{"q": "cats"}')
        # The first piece came long before the model was done.
        assert received[0] < sent[1]
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        assert (row["status"], row["input_tokens"], row["output_tokens"]) == ("completed", 7, 5)
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        stored = next(event["event"] for event in events if event["kind"] == "model_call")
        assert [item["type"] for item in stored["items"]] == ["message", "function_call"]
        assert stored["items"][1]["call_id"] == "call_a"
        assert stored["items"][1]["arguments"] == '{"q": "cats"}'


async def test_a_stream_of_the_model_that_breaks_breaks_the_agents_stream(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, paced_model(0.05, [], breaks=True) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}, max_attempts=1))
        async with client_of(offer) as client:
            with pytest.raises((openai.APIError, httpx2.TransportError)):
                stream = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Find cats."}], stream=True
                )
                [chunk async for chunk in stream]
        body = {"attempt": offer["attempt"], "message": "the stream broke"}
        await gym.request("POST", f"attempts/{offer['rollout']}/fail/", body)
        row = await ended(gym, offer["rollout"])
        # The model failed, not the agent.
        assert (row["status"], row["error_kind"], row["turns"]) == ("failed", "policy_error", 0)


QUERY = {"type": "object", "properties": {"q": {"type": "string"}}}
SEARCH = {"type": "function", "name": "search", "parameters": QUERY}


async def test_the_responses_api_streams_a_conversation_with_a_tool(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, paced_model(0.01, []) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        asked: list[Any] = [{"role": "user", "content": "Find cats."}]
        async with client_of(offer) as client:
            for turn in range(2):
                tools: list[Any] = [SEARCH, {"type": "web_search"}]
                async with client.responses.stream(
                    model="m", instructions="Be brief.", input=asked, tools=tools, store=False
                ) as stream:
                    text = "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])
                    final = await stream.get_final_response()
                assert text == final.output_text == "I look it up."
                assert [item.type for item in final.output] == ["message", "function_call"]
                call: Any = final.output[1]
                assert (call.call_id, call.name, call.arguments) == ("call_a", "search", '{"q": "cats"}')
                asked += [item.model_dump(exclude_none=True) for item in final.output]
                asked.append({"type": "function_call_output", "call_id": "call_a", "output": f"{turn} cats"})
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        await ended(gym, offer["rollout"])
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        calls = [event["event"] for event in events if event["kind"] == "model_call"]
        assert [(call.get("parent", 0), call.get("kept", 0), call["wire"]) for call in calls] == [
            (0, 0, "responses"),
            (1, 4, "responses"),
        ]
        assert [item["type"] for item in calls[1]["items_in"]] == ["function_call_output"]
        assert calls[0]["notes"] == ["tool web_search was dropped"]


async def test_the_responses_api_answers_at_once_without_a_stream(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site))
        async with client_of(offer) as client:
            reply = await client.responses.create(model="named", input="What is 2 + 2?", temperature=0.1)
            streamed = await client.responses.create(model="named", input="What is 2 + 2?", stream=True)
            kinds = [event.type async for event in streamed]
        assert reply.model == "named"
        assert "4" in reply.output_text
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        assert (await ended(gym, offer["rollout"]))["reward"] == 1.0


async def test_the_tools_of_the_environment_are_called_over_mcp(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, environment="calculator"))
        assert [tool["name"] for tool in offer["tools"]] == ["calculator"]
        async with (
            streamable_http_client(offer["mcp_url"]) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert [tool.name for tool in (await session.list_tools()).tools] == ["calculator"]
            called = await session.call_tool("calculator", {"expression": "2 + 2"})
            wrong = await session.call_tool("no_such_tool", {})
        assert (called.content[0].text, called.is_error, wrong.is_error) == ('{"result": 4}', False, True)
        body = {"attempt": offer["attempt"], "answer": "\\boxed{4}"}
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", body)
        row = await ended(gym, offer["rollout"])
        assert (row["status"], row["tool_calls"], row["tool_errors"]) == ("completed", 2, 1)


async def test_the_client_finishes_attempts_and_fails_on_exceptions(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site, tasks=2, max_attempts=1)
        solved = await gym.attempt(collection, wait_seconds=20)
        assert solved is not None
        assert solved.prompt == "What is 2 + 2?"
        async with solved, openai.AsyncOpenAI(base_url=solved.openai_base_url, api_key=solved.api_key) as client:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": solved.prompt}])
            await solved.extend()
        assert (await solved.result())["reward"] == 1.0
        with pytest.raises(ZeroDivisionError):
            async with gym.attempt(collection, wait_seconds=20) as broken:
                raise ZeroDivisionError("a bug")
        row = await broken.result()
        assert (row["error_kind"], row["error_message"]) == ("agent_error", "ZeroDivisionError: a bug")
        assert await gym.attempt(collection) is None
        with pytest.raises(NothingQueued):
            await gym.attempt(collection).__aenter__()


@pytest.mark.parametrize("call_id", ["call_a", "functions.search:0"])
async def test_the_messages_api_streams_a_conversation_with_a_tool(site: Site, call_id: str) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, paced_model(0.01, [], call_id=call_id) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        asked: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Find cats."}]}]
        tools: list[Any] = [{"name": "search", "input_schema": QUERY}]
        async with anthropic.AsyncAnthropic(
            base_url=offer["anthropic_base_url"], api_key=offer["api_key"], max_retries=0
        ) as client:
            for turn in range(2):
                async with client.messages.stream(
                    model="m", system="Be brief.", messages=asked, tools=tools, max_tokens=100
                ) as stream:
                    text = "".join([piece async for piece in stream.text_stream])
                    final = await stream.get_final_message()
                call: Any = final.content[1]
                assert (text, final.stop_reason, final.usage.output_tokens) == ("I look it up.", "tool_use", 5)
                assert (call.name, call.input) == ("search", {"q": "cats"})
                # The API accepts no other ids.
                assert (re.fullmatch("[a-zA-Z0-9_-]+", call.id) is not None, call.id == call_id) == (
                    True,
                    call_id == "call_a",
                )
                # As Claude Code does: first as blocks with a cache mark, later as a plain text.
                asked[0]["content"] = "Find cats."
                asked.append({"role": "assistant", "content": [block.model_dump() for block in final.content]})
                result = {"type": "tool_result", "tool_use_id": call.id, "content": f"{turn} cats"}
                asked.append({"role": "user", "content": [result]})
            counted = await client.messages.count_tokens(model="m", messages=asked)
            assert counted.input_tokens > 0
            with pytest.raises(anthropic.BadRequestError):
                await client.messages.create(model="m", messages=[], max_tokens=1)
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        await ended(gym, offer["rollout"])
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
        calls = [event["event"] for event in events if event["kind"] == "model_call"]
        assert [(call.get("parent", 0), call["wire"]) for call in calls] == [(0, "messages"), (1, "messages")]
        assert [(item["type"], item["call_id"]) for item in calls[1]["items_in"]] == [("function_call_output", call_id)]


async def test_the_messages_api_answers_at_once_without_a_stream(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site))
        async with anthropic.AsyncAnthropic(base_url=offer["anthropic_base_url"], api_key=offer["api_key"]) as client:
            question: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]
            reply = await client.messages.create(model="claude", messages=question, max_tokens=100)
        block: Any = reply.content[0]
        assert (reply.model, reply.stop_reason) == ("claude", "end_turn")
        assert "4" in block.text
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        assert (await ended(gym, offer["rollout"]))["reward"] == 1.0
