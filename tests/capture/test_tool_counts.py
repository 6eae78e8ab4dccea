"""Tool calls of agents that GymWeb did not write are counted, even if the agent runs the tools."""

from typing import Any

from gymweb_client import AsyncGymWeb
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.capture.test_agent_servers import agent_server, response
from tests.capture.test_external_agents import client_of, ended, paced_model, plan, pytestmark, take  # noqa: F401
from tests.capture.test_model_failures import model
from tests.clients.site import Site


def call_of(name: str, arguments: str, number: int) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


async def test_calls_that_the_agent_runs_are_counted_filtered_and_listed(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym, paced_model(0.01, []) as url:
        collection = await plan(gym, site, model={"base_url": url})
        offer = await take(gym, collection)
        messages: list[Any] = [{"role": "user", "content": "Find cats."}]
        async with client_of(offer) as client:
            for _ in range(2):
                async with client.chat.completions.stream(model="m", messages=messages) as stream:
                    reply = (await stream.get_final_completion()).choices[0].message
                messages.append(reply.model_dump(exclude_none=True, exclude={"parsed"}))
                messages.append({"role": "tool", "tool_call_id": "call_a", "content": "3 cats"})
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        assert (row["tool_calls"], row["tool_errors"]) == (2, 0)
        for filters, found in (("calls:2", 1), ("calls:0", 0), ("tool:search", 1)):
            rows = [one async for one in gym.rollouts(collection=collection, q=filters)]
            assert len(rows) == found, filters
        metrics = await gym.request("GET", f"collections/{collection}/metrics/")
        assert metrics["mean_tool_calls"] == 2.0
        # GymWeb does not know how long tools of the agent took.
        assert metrics["tools"] == [{"name": "search", "rollouts": 1, "calls": 2, "errors": 0, "mean_duration": None}]


async def test_calls_that_the_environment_runs_are_counted_once(site: Site) -> None:
    name = "mcp__gym__calculator"
    replies = [call_of(name, '{"expression": "2 + 2"}', 1), call_of(name, '{"expression": "2 +"}', 2), {"content": "4"}]
    async with AsyncGymWeb(site.base, site.key) as gym, model(lambda call: replies[call - 1]) as url:
        collection = await plan(gym, site, environment="calculator", model={"base_url": url})
        offer = await take(gym, collection)
        messages: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]
        async with (
            client_of(offer) as client,
            streamable_http_client(offer["mcp_url"]) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            for reply, expression in zip(replies, ("2 + 2", "2 +", ""), strict=True):
                await client.chat.completions.create(model="m", messages=messages)
                if expression:
                    told = await session.call_tool("calculator", {"expression": expression})
                    call_id = reply["tool_calls"][0]["id"]
                    result = {"role": "tool", "tool_call_id": call_id, "content": told.content[0].text}
                    messages += [{"role": "assistant", **reply}, result]
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        row = await ended(gym, offer["rollout"])
        assert (row["reward"], row["tool_calls"], row["tool_errors"]) == (1.0, 2, 1)
        [tool] = (await gym.request("GET", f"collections/{collection}/metrics/"))["tools"]
        assert (tool["name"], tool["calls"], tool["errors"]) == ("calculator", 2, 1)
        assert tool["mean_duration"] > 0.0


async def test_calls_at_an_agent_server_are_counted(site: Site) -> None:
    async with (
        AsyncGymWeb(site.base, site.key) as gym,
        agent_server(site, response) as server,
        model(lambda _: call_of("search", "{}", 1)) as url,
    ):
        agent = {"kind": "agent_server", "server_url": server}
        collection = await plan(gym, site, agent=agent, model={"base_url": url}, max_attempts=1)
        [row] = [one async for one in gym.rollouts(collection=collection)]
        row = await ended(gym, row["id"])
    assert (row["status"], row["tool_calls"]) == ("completed", 1)
