"""NeMo Gym's own agents, unmodified, run rollouts of GymWeb, which captures their model calls.

Its agents keep the session of a counter, so a wrong cookie would cost the reward.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from scripts.servers import free_port
from tests.capture.test_external_agents import ended
from tests.clients.site import Site, open_site
from tests.nemo_gym.real.installed import PACKAGES, PYTHON, child, needs_nemo_gym, running
from tests.nemo_gym.real.test_real_servers import rows_of
from tests.nemo_gym.solving import Items, count, count_wrong, nothing, weather

pytestmark = needs_nemo_gym
COUNTER = "example_session_state_mgmt"
OBSERVED: dict[str, Any] = {"observability_enabled": True}
TOKENS: dict[str, Any] = {"token_id_capture": {"enabled": True, "all_agents": True}}
PLAIN: dict[str, Any] = {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("agents"), "--seats", "8", GYMWEB_WORKER_GRACE_SECONDS="1") as opened:
        yield opened


@pytest.fixture(scope="module")
def counter() -> Iterator[str]:
    """The address of NeMo Gym's counter."""
    with running(COUNTER) as url:
        yield url


@contextmanager
def their_agent(kind: str, environment: str, model_port: int, options: dict[str, Any]) -> Iterator[str]:
    port, script = free_port(), Path(__file__).with_name("real_agent.py")
    own = [str(port), COUNTER, environment.rpartition(":")[2], str(model_port), kind, json.dumps(options)]
    with child([PYTHON, script, PACKAGES, *own], port):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def scripted(moves: Any, rows_name: str) -> AsyncIterator[str]:
    """A model with the Responses API that plays `moves` for the rows of a server."""
    rows = {prompt_of(row["responses_create_params"]["input"]): row for row in rows_of(rows_name)}

    async def answer(request: web.Request) -> web.Response:
        asked: Items = (await request.json())["input"]
        body = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": 1,
            "model": "scripted",
            "status": "completed",
            "output": moves(rows[prompt_of(asked)], *parted(asked)),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12},
        }
        return web.json_response(body)

    application = web.Application()
    application.router.add_post("/v1/responses", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def parted(items: Items) -> tuple[Items, Items]:
    """The items after the prompt, and the prompt, which ends with the user's first message."""
    end = next(place for place, item in enumerate(items) if item.get("role") == "user") + 1
    return items[end:], items[:end]


def prompt_of(items: Items) -> str:
    return json.dumps([item["content"] for item in parted(items)[1]])


async def collect(site: Site, moves: Any, counter: str, agent: dict[str, Any], rows_name: str = COUNTER) -> list[Any]:
    """The rollouts of the rows of a server, each with its `events`."""
    name = f"real-{uuid.uuid4().hex[:8]}"
    async with AsyncGymWeb(site.base, site.key) as gym, scripted(moves, rows_name) as model:
        server = {"slug": name, "name": name, "adapter": "http", "base_url": counter}
        await gym.request("POST", "environments/", server)
        await gym.upload(name, rows_of(rows_name), environment=name)
        policy = {"slug": name, "name": name, "provider": "compatible", "base_url": model, "model_name": "scripted"}
        await gym.request("POST", "policy-models/", {**policy, "wire": "responses"})
        await gym.request("POST", "agents/", {"slug": name, "name": name, "kind": "agent_server", **agent})
        planned = {"dataset": name, "agent": name, "policy_model": name, "repeats": 1, "max_attempts": 1}
        collection = (await gym.request("POST", "collections/", planned))["id"]
        rollouts = [await ended(gym, row["id"]) async for row in gym.rollouts(collection=collection)]
        for row in rollouts:
            row["events"] = [event["event"] for event in await gym.trace(row["id"])]
        return rollouts


@pytest.mark.parametrize("kind", ["simple_agent", "simple_agent_with_compaction"])
@pytest.mark.parametrize(
    ("route", "options"),
    [("responses", PLAIN), ("responses", TOKENS), ("run", OBSERVED), ("run", TOKENS), ("run", {**OBSERVED, **TOKENS})],
    ids=["responses", "responses-tokens", "run", "run-tokens", "run-both"],
)
def test_their_agent_runs_our_rollouts(
    site: Site, counter: str, kind: str, route: str, options: dict[str, Any]
) -> None:
    with their_agent(kind, counter, site.served.port, options) as url:
        agent = {"server_url": url, "server_route": route}
        right = asyncio.run(collect(site, count, counter, agent))
        wrong = asyncio.run(collect(site, count_wrong, counter, agent))
    assert len(right) == len(wrong) == len(rows_of(COUNTER))
    assert {(row["status"], row["reward"], row["error_message"]) for row in right} == {("completed", 1.0, "")}
    assert {(row["status"], row["reward"], row["error_message"]) for row in wrong} == {("completed", 0.0, "")}
    for row in right:
        calls = [event for event in row["events"] if event["type"] == "model_call"]
        assert [call.get("parent", 0) for call in calls] == [0, 1, 2]
        assert [len(call["items_in"]) for call in calls] == [1, 2, 1]
        assert {call["wire"] for call in calls} == {"responses"}
        assert "cs_" not in str(row["events"])


def test_their_agent_without_correlation_fails_with_the_remedy(site: Site, counter: str) -> None:
    with their_agent("simple_agent", counter, site.served.port, {}) as url:
        rollouts = asyncio.run(collect(site, count, counter, {"server_url": url, "server_route": "run"}))
    assert {(row["status"], row["error_kind"]) for row in rollouts} == {("failed", "agent_error")}
    assert all("observability_enabled: true" in row["error_message"] for row in rollouts)


@contextmanager
def their_environment_server(name: str, environment: str, model_port: int) -> Iterator[str]:
    """NeMo Gym's environment server for one turn, with an agent and the resource server that it fronts."""
    port, agent_port, script = free_port(), free_port(), Path(__file__).with_name("real_agent.py")
    turns = {
        "entrypoint": "app.py",
        "host": "127.0.0.1",
        "port": port,
        "resources_server": {"type": "resources_servers", "name": name},
        "agent_server": {"type": "responses_api_agents", "name": "agent"},
        "resources_tool_transports": ["direct_http"],
        "cleanup_timeout_seconds": 30,
    }
    whole: dict[str, Any] = {**OBSERVED, "turns": {"environment_servers": {"single_agent_turn": turns}}}
    common = [str(agent_port), name, environment.rpartition(":")[2], str(model_port), "simple_agent"]
    serves = {"_serves": "turns.environment_servers.single_agent_turn"}
    command = [PYTHON, script, PACKAGES, *common]
    with child([*command, json.dumps(whole)], agent_port), child([*command, json.dumps({**whole, **serves})], port):
        yield f"http://127.0.0.1:{port}"


WEATHER = "example_single_tool_call"


@pytest.mark.parametrize(("moves", "reward", "calls"), [(weather, 1.0, 2), (nothing, 0.0, 1)])
def test_their_environment_server_runs_our_episodes(site: Site, moves: Any, reward: float, calls: int) -> None:
    with running(WEATHER) as server, their_environment_server(WEATHER, server, site.served.port) as url:
        agent = {"server_url": url, "server_route": "episode"}
        rollouts = asyncio.run(collect(site, moves, server, agent, WEATHER))
    assert {(row["status"], row["reward"], row["error_message"]) for row in rollouts} == {("completed", reward, "")}
    assert len(rollouts) == len(rows_of(WEATHER))
    assert {sum(event["type"] == "model_call" for event in row["events"]) for row in rollouts} == {calls}
    assert "cs_" not in str([row["events"] for row in rollouts])


def test_a_failure_of_their_environment_server_has_its_stage(site: Site, counter: str) -> None:
    """The counter still expects flat rows in /seed_session, so no episode begins."""
    with their_environment_server(COUNTER, counter, site.served.port) as url:
        rollouts = asyncio.run(collect(site, count, counter, {"server_url": url, "server_route": "episode"}))
    assert {(row["status"], row["error_kind"], row["reward"]) for row in rollouts} == {
        ("failed", "environment_error", None)
    }
    assert all("(stage seed): 422" in row["error_message"] for row in rollouts)
