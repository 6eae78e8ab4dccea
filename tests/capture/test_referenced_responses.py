"""Agents that name earlier responses and their items by id, and requests whose parts the model cannot get."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from apps.gym.traces.events import decode_event
from apps.gym.traces.relinking import relink
from tests.capture.test_external_agents import SEARCH, client_of, ended, plan, take
from tests.clients.site import Site
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.slow


@asynccontextmanager
async def recording_model(asked: list[Any], *, calls: int = 0) -> AsyncIterator[str]:
    """A model that calls the tool at its first `calls` requests, then answers "reply 1", "reply 2" and so on.

    It gives each completion the same id, as some servers do. `asked` gets the body of each request.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json())
        number = len(asked)
        spoken: dict[str, Any] = {"role": "assistant", "content": f"reply {number}"}
        if number <= calls:
            function = {"name": "search", "arguments": '{"q": "cats"}'}
            spoken["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        usage = {"prompt_tokens": 7, "completion_tokens": 5}
        finish = "tool_calls" if number <= calls else "stop"
        if not asked[-1].get("stream"):
            choice = {"index": 0, "message": spoken, "finish_reason": finish}
            return web.json_response({"id": "c", "model": "m", "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place, call in enumerate(spoken.get("tool_calls", [])):
            call["index"] = place
        for delta, reason in ((spoken, None), ({}, finish)):
            chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": usage}
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def finish(gym: AsyncGymWeb, offer: Any) -> list[Any]:
    """Finish the attempt. Return its calls, after checking that a recheck keeps their links."""
    await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
    await ended(gym, offer["rollout"])
    stored = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
    events = [decode_event(json.dumps({"type": one["kind"], **one["event"]})) for one in stored]
    assert relink(events) == {}
    return [event["event"] for event in stored if event["kind"] == "model_call"]


def said(asked: list[Any]) -> list[Any]:
    """Return roles and contents of the last request to the model."""
    return [(one["role"], one["content"]) for one in asked[-1]["messages"]]


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def reference(item: str) -> Any:
    return {"type": "item_reference", "id": item}


@pytest.mark.parametrize("streams", [False, True])
async def test_references_become_the_items_that_the_client_saw(site: Site, streams: bool) -> None:
    asked: list[Any] = []

    async def respond(client: openai.AsyncOpenAI, given: list[Any]) -> list[str]:
        """Return the ids of the reply's items as the client saw them."""
        if not streams:
            return [item.id for item in (await client.responses.create(model="m", input=given)).output if item.id]
        events = [event async for event in await client.responses.create(model="m", input=given, stream=True)]
        ids = [event.item.id for event in events if event.type == "response.output_item.done" and event.item.id]
        last = events[-1]
        assert last.type == "response.completed"
        assert [item.id for item in last.response.output] == ids
        return ids

    async with AsyncGymWeb(site.base, site.key) as gym, recording_model(asked) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        async with client_of(offer) as client:
            (first,) = await respond(client, [user("first")])
            given = [user("first"), reference(first), user("second")]
            (second,) = await respond(client, given)
            assert said(asked) == [("user", "first"), ("assistant", "reply 1"), ("user", "second")]
            await respond(client, [*given, reference(second), user("third")])
            assert said(asked)[1::2] == [("assistant", "reply 1"), ("assistant", "reply 2")]
        calls = await finish(gym, offer)
    assert [call.get("parent", 0) for call in calls] == [0, 1, 2]
    assert [[item["content"] for item in call["items_in"]] for call in calls] == [["first"], ["second"], ["third"]]


async def test_a_previous_response_is_the_exact_parent(site: Site) -> None:
    asked: list[Any] = []
    tools: list[Any] = [SEARCH]
    async with AsyncGymWeb(site.base, site.key) as gym, recording_model(asked, calls=2) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        async with client_of(offer) as client:
            first = await client.responses.create(model="m", input="Find cats.", tools=tools)
            async with client.responses.stream(model="m", input="Find cats.", tools=tools) as stream:
                again = await stream.get_final_response()
            assert first.id.startswith("resp_") and first.id != again.id
            for before, call in ((again, "call_2"), (first, "call_1")):
                output: Any = {"type": "function_call_output", "call_id": call, "output": "3 cats"}
                reply = await client.responses.create(
                    model="m", previous_response_id=before.id, input=[output], tools=tools
                )
                assert reply.previous_response_id == before.id
                roles = [(one["role"], one.get("tool_call_id")) for one in asked[-1]["messages"]]
                assert roles == [("user", None), ("assistant", None), ("tool", call)]
            last = await client.responses.create(model="m", previous_response_id=reply.id, input="And dogs?")
            assert [text for role, text in said(asked) if role != "tool"] == [
                "Find cats.",
                "reply 1",
                "reply 4",
                "And dogs?",
            ]
        calls = await finish(gym, offer)
    assert last.output_text == "reply 5"
    places = [(call.get("parent", 0), call.get("previous", 0), call["lineage"]) for call in calls]
    assert places == [(0, 0, 1), (0, 0, 1), (2, 2, 1), (1, 1, 2), (4, 4, 2)]
    assert [len(call["items_in"]) for call in calls] == [1, 1, 1, 1, 1]


async def test_instructions_are_not_inherited(site: Site) -> None:
    asked: list[Any] = []
    async with AsyncGymWeb(site.base, site.key) as gym, recording_model(asked) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        async with client_of(offer) as client:
            first = await client.responses.create(model="m", instructions="Be brief.", input="one")
            brief = await client.responses.create(
                model="m", instructions="Be brief.", previous_response_id=first.id, input="two"
            )
            assert [role for role, _ in said(asked)] == ["system", "user", "assistant", "user"]
            plain = await client.responses.create(model="m", previous_response_id=brief.id, input="three")
            assert said(asked) == [
                ("user", "one"),
                ("assistant", "reply 1"),
                ("user", "two"),
                ("assistant", "reply 2"),
                ("user", "three"),
            ]
            await client.responses.create(
                model="m", instructions="Be long.", previous_response_id=plain.id, input="four"
            )
            assert [text for role, text in said(asked) if role in ("system", "user")] == [
                "Be long.",
                "one",
                "two",
                "three",
                "four",
            ]
        calls = await finish(gym, offer)
    assert [(call.get("parent", 0), call.get("previous", 0), call["lineage"]) for call in calls] == [
        (0, 0, 1),
        (1, 1, 1),
        (0, 2, 1),
        (0, 3, 1),
    ]
    assert [call.get("root_reason", "") for call in calls] == ["first", "", "rewritten", "rewritten"]


async def test_unknown_and_unstored_responses_are_refused_at_their_place(site: Site) -> None:
    asked: list[Any] = []
    async with AsyncGymWeb(site.base, site.key) as gym, recording_model(asked) as url:
        collection = await plan(gym, site, tasks=2, model={"base_url": url})
        offer, other = await take(gym, collection), await take(gym, collection)
        async with client_of(offer) as client, client_of(other) as stranger:
            foreign = await stranger.responses.create(model="m", input="x")
            unstored = await client.responses.create(model="m", input="x", store=False)
            for unknown in ("resp_1", foreign.id, unstored.id, foreign.output[0].id):
                with pytest.raises(openai.BadRequestError, match="not found") as refused:
                    await client.responses.create(model="m", input="x", previous_response_id=unknown)
                assert (refused.value.param, refused.value.code) == (
                    "previous_response_id",
                    "previous_response_not_found",
                )
            for item in ("msg_1", foreign.output[0].id, unstored.output[0].id, foreign.id):
                with pytest.raises(openai.BadRequestError, match="not found") as refused:
                    await client.responses.create(model="m", input=[user("x"), reference(str(item)), user("y")])
                assert refused.value.param == "input[1].id"
            with pytest.raises(openai.BadRequestError, match="store: false"):
                await client.responses.create(model="m", input="x", previous_response_id=unstored.id)
            with pytest.raises(openai.BadRequestError, match="conversations are not stored") as refused:
                await client.responses.create(model="m", input="x", conversation="conv_1")
            assert refused.value.param == "conversation"
        assert len(asked) == 2


CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
CUSTOM = {"id": "c2", "type": "custom", "custom": {"name": "code", "input": "print(1)"}}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"messages": [user("x"), {"role": "robot"}]}, "messages[1].role"),
    ("chat/completions", {"messages": [user("x"), 7]}, "messages[1]"),
    (
        "chat/completions",
        {"messages": [user("x"), {"role": "assistant", "tool_calls": [CALL, CUSTOM]}]},
        "messages[1].tool_calls[1].type",
    ),
    (
        "chat/completions",
        {"messages": [user("x"), user("y"), {"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]},
        "messages[2].tool_calls[0].function.name",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "assistant", "function_call": {"name": "run", "arguments": "{}"}}]},
        "messages[0].function_call",
    ),
    ("chat/completions", {"messages": [user("x")], "tools": [{"type": "function"}]}, "tools[0].function.name"),
    (
        "chat/completions",
        {"messages": [user("x")], "tool_choice": {"type": "custom", "custom": {"name": "code"}}},
        "tool_choice",
    ),
    ("chat/completions", {"messages": [user("x")], "n": 2}, "n"),
    ("responses", {"input": [user("x"), {"text": "y"}]}, "input[1]"),
    ("responses", {"input": [user("x"), {"type": "function_call", "call_id": "c"}]}, "input[1].name"),
    ("responses", {"input": [user("x"), {"type": "function_call_output", "output": "y"}]}, "input[1].call_id"),
    (
        "responses",
        {"input": [user("x"), {"type": "custom_tool_call", "call_id": "c", "name": "code", "input": "1"}]},
        "input[1].type",
    ),
    ("responses", {"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "1"}]}, "input[0].type"),
    ("responses", {"input": [user("x")], "tools": [{"type": "function"}]}, "tools[0].name"),
    ("responses", {"input": [user("x")], "tools": [SEARCH, 7]}, "tools[1]"),
    ("responses", {"input": [user("x")], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ("responses", {"input": "x", "instructions": [user("y")]}, "instructions"),
]


async def test_errors_name_the_place_of_the_problem(site: Site) -> None:
    asked: list[Any] = []
    async with (
        AsyncGymWeb(site.base, site.key) as gym,
        recording_model(asked) as url,
        aiohttp.ClientSession() as session,
    ):
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        for path, body, param in BAD:
            async with session.post(f"{offer['openai_base_url']}/{path}", json={"model": "m", **body}) as reply:
                error = (await reply.json())["error"]
            assert (reply.status, error["param"], error["code"]) == (400, param, "invalid_request"), error
        other_url = f"{offer['anthropic_base_url']}/v1/messages"
        block = {"type": "tool_use", "id": "c", "input": {}}
        messages = [user("x"), {"role": "assistant", "content": [block]}]
        async with session.post(other_url, json={"model": "m", "max_tokens": 9, "messages": messages}) as reply:
            error = (await reply.json())["error"]
        assert (reply.status, error["message"].partition(":")[0]) == (400, "messages.1.content.0.tool_use.name")
        assert asked == []


async def test_parts_that_the_model_does_not_get_are_named(site: Site) -> None:
    asked: list[Any] = []
    thought = {"type": "thinking", "thinking": "Cats are easy.", "signature": "s"}
    history: Any = [
        user("x"),
        {
            "role": "assistant",
            "name": "finder",
            "content": [{"type": "text", "text": "y"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
            "thinking_blocks": [thought],
            "audio": {"id": "a"},
        },
        user("z"),
    ]
    tools: Any = [{"type": "custom", "custom": {"name": "code"}}, {"type": "function", "function": {"name": "run"}}]
    async with AsyncGymWeb(site.base, site.key) as gym, recording_model(asked) as url:
        offer = await take(gym, await plan(gym, site, model={"base_url": url}))
        async with client_of(offer) as client:
            await client.chat.completions.create(model="m", messages=history, tools=tools)
            flat: Any = [{"type": "custom", "name": "code"}, {**SEARCH, "strict": False}]
            await client.responses.create(model="m", input="x", tools=flat)
        calls = await finish(gym, offer)
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in asked] == [["run"], ["search"]]
    assert calls[0]["notes"] == [
        "tool code was dropped",
        "audio of assistant messages was dropped",
        "content of type image_url of assistant messages was dropped",
        "name of assistant messages was dropped",
    ]
    assert [item["summary"][0]["text"] for item in calls[0]["items_in"] if item["type"] == "reasoning"] == [
        "Cats are easy."
    ]
    assert calls[1]["notes"] == ["tool code was dropped"]
