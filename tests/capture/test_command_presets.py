"""Real command line agents with a scripted model: each solves a file task with two calls and one tool result.

They are left out by name where they are not installed: see scripts/fetch_command_agents.py.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from apps.gym.boxes.command_presets import PRESETS
from apps.gym.capture.capture_server import WIRES
from scripts.fetch_command_agents import cache_folder
from tests.capture.test_command_agents import run_one, trace
from tests.clients.site import Site
from tests.gym.sandbox.needing import needs_sandbox
from tests.rollouts.work import serve_chat

pytestmark = [pytest.mark.slow, needs_sandbox]
WIRE_PATHS = {"claude-code": "v1/messages", "codex": "v1/responses"}
CALLS = {
    "claude-code": ("Write", {"file_path": "/work/answer.txt", "content": "4"}),
    "codex": ("exec_command", {"cmd": "printf 4 > answer.txt"}),
}


def find_missing(name: str) -> str:
    """Why a preset cannot be tested here; empty if it can."""
    preset = PRESETS[name]
    package = cache_folder() / "node_modules" / preset.package / "package.json"
    if not package.exists() or json.loads(package.read_text())["version"] != preset.version:
        return f"{preset.package}@{preset.version} is not installed: python -m scripts.fetch_command_agents"
    return "" if WIRE_PATHS[name] in WIRES else f"the capture server has no /{WIRE_PATHS[name]}"


def presets() -> list[Any]:
    """The presets, each left out by name where it is missing."""
    reasons = {name: find_missing(name) for name in PRESETS}
    return [
        pytest.param(name, marks=[pytest.mark.skipif(bool(why), reason=f"SKIPPED by name: {name}: {why}")])
        for name, why in reasons.items()
    ]


@asynccontextmanager
async def scripted_model(name: str, asked: list[Any]) -> AsyncIterator[str]:
    """A model that calls one tool, then ends. `asked` gets each request."""
    tool, arguments = CALLS[name]
    call = {"index": 0, "id": "call_1", "type": "function"}
    call["function"] = {"name": tool, "arguments": json.dumps(arguments)}

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked.append(body)
        is_done = any(one["role"] == "tool" for one in body["messages"])
        delta = {"content": "The file is written."} if is_done else {"tool_calls": [call]}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        ends = {"index": 0, "delta": {}, "finish_reason": "stop" if is_done else "tool_calls"}
        for chunk in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {"choices": [ends]},
            {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}},
        ):
            line = json.dumps({"id": "c", "model": "scripted", "object": "chat.completion.chunk", **chunk})
            await response.write(f"data: {line}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", presets())
async def test_a_preset_solves_a_file_task_with_two_calls(agents_site: Site, name: str) -> None:
    asked: list[Any] = []
    settings = msgspec.to_builtins(PRESETS[name].spec)
    settings |= {"mounts": [str(cache_folder())], "answer_file": "answer.txt"}
    agent = {"kind": "command", "command_settings": settings}
    async with AsyncGymWeb(agents_site.base, agents_site.key) as gym, scripted_model(name, asked) as url:
        row = await run_one(gym, agents_site, agent, model={"base_url": url})
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
        events = await trace(gym, row["id"])
    calls = [event["event"] for event in events if event["kind"] == "model_call"]
    assert [call.get("parent", 0) for call in calls] == [0, 1]
    outputs = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in outputs] == [
        item["call_id"] for item in calls[0]["items"] if item["type"] == "function_call"
    ]
    assert len(asked) == 2
