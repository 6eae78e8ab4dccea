"""A Chat Completions endpoint that answers with given replies, in order."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from gymweb_client import AsyncGymWeb

from tests.rollouts.work import serve_chat


@dataclass(frozen=True)
class Reply:
    """A text, a call of a tool, or both. `also` has further calls of the same reply."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    also: tuple["Reply", ...] = ()

    def message(self, number: int) -> dict[str, Any]:
        if not self.tool:
            return {"content": self.text}
        calls = [
            {
                "id": f"call_{number}_{place}",
                "type": "function",
                "function": {"name": one.tool, "arguments": json.dumps(one.arguments)},
            }
            for place, one in enumerate((self, *self.also))
        ]
        return {"content": self.text or None, "tool_calls": calls}


@dataclass
class ScriptedModel:
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    """The requests, in order."""


@asynccontextmanager
async def scripted_model(replies: Sequence[Reply], aside: Reply | None = None) -> AsyncIterator[ScriptedModel]:
    """Serve the replies. Requests without tools get `aside`, if it is given. Further requests get a 400."""
    model = ScriptedModel()
    left = list(replies)

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        model.bodies.append(body)
        if aside is not None and not body.get("tools"):
            reply = aside
        elif left:
            reply = left.pop(0)
        else:
            return web.json_response({"error": {"message": "The script has no more replies."}}, status=400)
        spoken = reply.message(len(model.bodies))
        finish, usage = "tool_calls" if reply.tool else "stop", {"prompt_tokens": 20, "completion_tokens": 5}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **spoken}, "finish_reason": finish}
            return web.json_response({"id": "c", "model": "scripted", "choices": [choice], "usage": usage})
        if reply.tool:
            spoken["tool_calls"] = [{"index": place, **call} for place, call in enumerate(spoken["tool_calls"])]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", **spoken}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": usage},
        ):
            line = json.dumps({"id": "c", "model": "scripted", "object": "chat.completion.chunk", **chunk})
            await response.write(f"data: {line}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    model.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()


async def plan(gym: AsyncGymWeb, name: str, url: str, task: str, expected: str) -> int:
    """Plan a collection of an external agent with one task. Return its id."""
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": task}]},
        "expected_answer": expected,
    }
    await gym.upload(name, [row], environment="calculator")
    model = {"slug": name, "name": name, "provider": "compatible", "base_url": url, "model_name": "m", "wire": "chat"}
    await gym.request("POST", "policy-models/", model)
    await gym.request("POST", "agents/", {"slug": name, "name": name, "kind": "external"})
    planned = {"dataset": name, "agent": name, "policy_model": name, "max_attempts": 1}
    collection: int = (await gym.request("POST", "collections/", planned))["id"]
    return collection
