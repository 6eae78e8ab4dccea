"""The command agents of examples/agents/ with a scripted model: each solves a file task with two calls.

They are left out by name where they are not installed: see scripts/fetch_command_agents.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from gymweb_client import AsyncGymWeb

from scripts.fetch_command_agents import cache_folder, find_missing
from tests.capture.test_command_agents import run_one, trace
from tests.capture.test_command_presets import call_tool, events_of, named, scripted_model
from tests.clients.site import Site
from tests.gym.sandbox.needing import needs_sandbox

pytestmark = [pytest.mark.slow, needs_sandbox]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "agents"
PACKAGES = {"opencode": "opencode-ai", "mini_swe_agent": "mini-swe-agent"}
WRITE = {"command": "printf 4 > answer.txt && ls *.txt", "description": "Write the answer"}
LAST_REPLIES: dict[str, dict[str, Any]] = {
    "opencode": {"content": "4"},
    "mini_swe_agent": call_tool("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}, "call_2"),
}


@pytest.mark.parametrize("name", named({name: find_missing(package) for name, package in PACKAGES.items()}))
async def test_an_example_solves_a_file_task_with_two_calls(agents_site: Site, name: str) -> None:
    agent = json.loads((EXAMPLES / f"{name}.json").read_text())
    assert agent["command_settings"]["mounts"] == ["/opt/agents"]
    agent["command_settings"]["mounts"] = [str(cache_folder())]
    del agent["slug"], agent["name"]
    asked: list[Any] = []

    def reply(messages: list[Any]) -> dict[str, Any]:
        is_done = any(one["role"] == "tool" for one in messages)
        return LAST_REPLIES[name] if is_done else call_tool("bash", WRITE, "call_1")

    async with AsyncGymWeb(agents_site.base, agents_site.key) as gym, scripted_model(reply, asked) as url:
        row = await run_one(gym, agents_site, agent, model={"base_url": url})
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
        events = await trace(gym, row["id"])
    calls = events_of(events, "model_call")
    assert [call.get("parent", 0) for call in calls] == [0, 1]
    (output,) = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert output["call_id"] == "call_1"
    assert "answer.txt" in output["output"]
    assert len(asked) == 2
    (end,) = events_of(events, "agent_end")
    assert end["answer"] == "4"
    assert end.get("artifacts", {}).keys() == set(agent["command_settings"].get("artifacts", []))
