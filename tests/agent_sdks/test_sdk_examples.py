"""The examples of agent frameworks, run from the environment of `make agents` with a scripted model.

Without that environment every test here is skipped by name.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from gymweb_client import AsyncGymWeb

from scripts.build_environment import environment_folder, is_complete
from tests.agent_sdks.scripted_model import Reply, plan, scripted_model
from tests.capture.test_external_agents import ended
from tests.clients.site import Site

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = environment_folder("agents")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_complete(ENVIRONMENT), reason="SKIPPED by name: agent frameworks: make agents"),
]
REPLIES = [Reply(tool="calculator", arguments={"expression": "6 * 7"}), Reply("The answer is \\boxed{42}.")]
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


@pytest.mark.parametrize(("example", "wire", "streams"), RUNS)
def test_an_example_solves_a_task_with_a_tool(site: Site, example: str, wire: str, streams: bool) -> None:
    asyncio.run(run_example(site, example, wire, streams))


async def run_example(site: Site, example: str, wire: str, streams: bool) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, scripted_model(REPLIES) as model:
        name = f"{example}-{wire}-{streams}".lower().replace("_", "-")
        collection = await plan(gym, name, model.url, "What is 6 * 7?", "42")
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
    assert said == REPLIES[1].text
    outputs = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert len(outputs) == 1
