"""Agent packages that name earlier responses, run from the environment of `make agents` with a scripted model."""

import asyncio
import os
import subprocess
import uuid
from typing import Any

import pytest
from gymweb_client import AsyncGymWeb

from tests.agent_sdks.scripted_model import plan, scripted_model
from tests.agent_sdks.test_sdk_examples import ENVIRONMENT, REPLIES, pytestmark
from tests.capture.test_external_agents import ended, take
from tests.clients.site import Site

__all__ = ["pytestmark"]

OPENAI_AGENTS = """
import asyncio, sys
from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)

@function_tool
def calculator(expression: str) -> str:
    return "42"

async def main():
    agent = Agent(name="solver", instructions="Be brief.", tools=[calculator])
    start = {"auto_previous_response_id": True}
    if "--stream" in sys.argv:
        run = Runner.run_streamed(agent, "What is 6 * 7?", **start)
        async for _ in run.stream_events():
            pass
    else:
        run = await Runner.run(agent, "What is 6 * 7?", **start)
    print(run.final_output)

asyncio.run(main())
"""
LANGCHAIN = """
import sys
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def calculator(expression: str) -> str:
    "Calculate."
    return "42"

model = ChatOpenAI(
    model="m", use_responses_api=True, use_previous_response_id=True, streaming="--stream" in sys.argv
).bind_tools([calculator])
messages = [("system", "Be brief."), ("user", "What is 6 * 7?")]
while (reply := model.invoke(messages)).tool_calls:
    messages += [reply, *map(calculator.invoke, reply.tool_calls)]
print(reply.text)
"""


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("program", [OPENAI_AGENTS, LANGCHAIN], ids=["openai-agents", "langchain"])
def test_a_package_continues_a_response_by_its_id(site: Site, program: str, streams: bool) -> None:
    asyncio.run(run_program(site, program, streams))


async def run_program(site: Site, program: str, streams: bool) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, scripted_model(REPLIES) as model:
        name = f"named-{uuid.uuid4().hex[:8]}"
        offer = await take(gym, await plan(gym, name, model.url, "What is 6 * 7?", "42"))
        words = [str(ENVIRONMENT / "bin" / "python"), "-c", program, *(["--stream"] if streams else [])]
        address = {"OPENAI_BASE_URL": offer["openai_base_url"], "OPENAI_API_KEY": offer["api_key"]}
        done = await asyncio.to_thread(
            subprocess.run,
            words,
            env={**os.environ, **address},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert REPLIES[1].text in done.stdout
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
    assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
    calls: list[Any] = [event["event"] for event in events if event["kind"] == "model_call"]
    assert [(call.get("parent", 0), call.get("previous", 0)) for call in calls] == [(0, 0), (1, 1)]
    assert [item["type"] for item in calls[1]["items_in"]] == ["function_call_output"]
