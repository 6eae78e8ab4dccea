"""The examples of agent frameworks, run from the environment of `make agents` with a scripted model.

Without that environment every test here is skipped by name.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from scripts.build_environment import environment_folder, is_complete
from tests.capture.test_external_agents import ended
from tests.clients.site import Site, open_site
from tests.rollouts.work import serve_chat

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = environment_folder("agents")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_complete(ENVIRONMENT), reason="SKIPPED by name: agent frameworks: make agents"),
]
CALL = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "6 * 7"}'}}
ANSWER = "The answer is \\boxed{42}."
RUNS = [
    ("openai_agents_sdk", "chat", False),
    ("openai_agents_sdk", "chat", True),
    ("openai_agents_sdk", "responses", False),
    ("openai_agents_sdk", "responses", True),
    ("langgraph_agent", "chat", False),
    ("langgraph_agent", "chat", True),
    ("langgraph_agent", "responses", False),
    ("langgraph_agent", "messages", False),
    ("langgraph_agent", "messages", True),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("sdks"), "--seats", "8") as opened:
        yield opened


@asynccontextmanager
async def scripted_model() -> AsyncIterator[str]:
    """A model that calls the calculator, then answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        is_done = any(one["role"] == "tool" for one in body["messages"])
        spoken: dict[str, Any] = {"content": ANSWER} if is_done else {"content": None, "tool_calls": [CALL]}
        finish, usage = "stop" if is_done else "tool_calls", {"prompt_tokens": 20, "completion_tokens": 5}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **spoken}, "finish_reason": finish}
            return web.json_response({"id": "c", "model": "scripted", "choices": [choice], "usage": usage})
        if not is_done:
            spoken["tool_calls"] = [{"index": 0, **CALL}]
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
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def plan(gym: AsyncGymWeb, name: str, url: str) -> int:
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "What is 6 * 7?"}]},
        "expected_answer": "42",
    }
    await gym.upload(name, [row], environment="calculator")
    model = {"slug": name, "name": name, "provider": "compatible", "base_url": url, "model_name": "m", "wire": "chat"}
    await gym.request("POST", "policy-models/", model)
    await gym.request("POST", "agents/", {"slug": name, "name": name, "kind": "external"})
    planned = {"dataset": name, "agent": name, "policy_model": name, "max_attempts": 1}
    collection: int = (await gym.request("POST", "collections/", planned))["id"]
    return collection


@pytest.mark.parametrize(("example", "wire", "streams"), RUNS)
def test_an_example_solves_a_task_with_a_tool(site: Site, example: str, wire: str, streams: bool) -> None:
    asyncio.run(run_example(site, example, wire, streams))


async def run_example(site: Site, example: str, wire: str, streams: bool) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, scripted_model() as url:
        collection = await plan(gym, f"{example}-{wire}-{streams}".lower().replace("_", "-"), url)
        program = ROOT / "examples" / "agents" / f"{example}.py"
        words = [str(ENVIRONMENT / "bin" / "python"), str(program), str(collection), "--wire", wire, "--wait", "1"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "clients" / "python"),
            "GYMWEB_URL": site.base,
            "GYMWEB_KEY": site.key,
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [*words, *(["--stream"] if streams else [])],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (rollout,) = (await gym.request("GET", f"rollouts/?collection={collection}"))["results"]
        row = await ended(gym, rollout["id"])
        events = (await gym.request("GET", f"rollouts/{rollout['id']}/trace/"))["events"]
    assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
    calls = [event["event"] for event in events if event["kind"] == "model_call"]
    assert [call.get("parent", 0) for call in calls] == [0, 1]
    assert [item["name"] for item in calls[0]["items"] if item["type"] == "function_call"] == ["calculator"]
    (said,) = [part["text"] for item in calls[1]["items"] if item["type"] == "message" for part in item["content"]]
    assert said == ANSWER
    outputs = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert len(outputs) == 1
