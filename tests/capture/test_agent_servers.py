"""Agent servers with NeMo Gym's protocol: they run a rollout, and their calls of the model are captured."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from tests.capture.test_external_agents import ended, plan, pytestmark  # noqa: F401 - marks this module too
from tests.clients.site import Site

Answer = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


def response(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    return reply


def verified(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    right = body["expected_answer"] in reply["output"][-1]["content"][0]["text"]
    return {**body, "response": reply, "reward": 0.5 if right else 0.0, "explanation": "half, by its own rule"}


@asynccontextmanager
async def agent_server(site: Site, answer: Answer, *, captured: bool = True) -> AsyncIterator[str]:
    """An agent server that asks its model once, with a key of its own. It finds the rollout's id as NeMo Gym does."""

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        params = body.get("responses_create_params", body)
        if "episode_id" in body:
            params, rollout = body["task"]["task_input"]["responses_create_params"], body["episode_id"]["rollout_id"]
        else:
            rollout = request.match_info.get("id") or body["_ng_rollout_id"]
        assert "_ng_attempt_index" not in body
        url = f"{site.base}/ng-rollout/{rollout}/training-token-capture/v1/responses"
        asked = {"input": params["input"], "model": "policy_model"}
        if not captured:
            return web.json_response(answer(body, {"output": []}))
        headers = {"Authorization": "Bearer of-its-own"}
        async with aiohttp.ClientSession() as session, session.post(url, json=asked, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            return web.json_response(answer(body, await reply.json()))

    application = web.Application()
    application.router.add_post("/ng-rollout/{id}/v1/responses", handle)
    application.router.add_post("/run", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def run_one(site: Site, url: str, **agent: Any) -> tuple[Any, list[Any]]:
    """The rollout of a task, and the events of its trace."""
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site, agent={"kind": "agent_server", "server_url": url, **agent}, max_attempts=1)
        rollouts = [row async for row in gym.rollouts(collection=collection)]
        row = await ended(gym, rollouts[0]["id"])
        return row, [event["event"] for event in await gym.trace(row["id"])]


async def test_a_rollout_at_an_agent_server_is_verified_here(site: Site) -> None:
    async with agent_server(site, response) as url:
        row, events = await run_one(site, url)
    assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 1)
    call = next(event for event in events if event["type"] == "model_call")
    assert (call["wire"], call["items_in"][0]["content"]) == ("responses", "What is 2 + 2?")


async def test_an_agent_server_that_verifies_gives_the_reward(site: Site) -> None:
    async with agent_server(site, verified) as url:
        row, events = await run_one(site, url, server_route="run")
    assert (row["status"], row["reward"]) == ("completed", 0.5)
    assert events[-1]["explanation"] == "half, by its own rule"
    # The server repeats the key of the attempt in its reply.
    assert "cs_" not in str(events)


async def test_an_agent_server_that_skips_verification_gives_no_reward(site: Site) -> None:
    def skipped(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        return {**body, "response": reply, "reward": 0.0, "verification_skipped": True}

    async with agent_server(site, skipped) as url:
        row, _ = await run_one(site, url, server_route="run")
    assert (row["status"], row["error_kind"], row["reward"]) == ("failed", "agent_error", None)


async def test_an_agent_server_with_another_model_fails_with_the_remedy(site: Site) -> None:
    async with agent_server(site, response, captured=False) as url:
        row, _ = await run_one(site, url)
    assert (row["status"], row["error_kind"]) == ("failed", "agent_error")
    assert "host and port" in row["error_message"]


async def test_an_agent_server_that_fails_is_quoted_without_the_key(site: Site) -> None:
    def fail(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        raise web.HTTPInternalServerError(text=f"no rows in {body}")

    async with agent_server(site, fail) as url:
        row, _ = await run_one(site, url, server_route="run")
    assert row["error_kind"] == "agent_error"
    assert "'_ng_rollout_id': '(key)'" in row["error_message"]


async def test_an_agent_server_that_is_away_fails_its_rollouts(site: Site) -> None:
    async with agent_server(site, response) as url:
        pass
    row, _ = await run_one(site, url)
    assert (row["status"], row["error_kind"]) == ("failed", "agent_error")


# -- environment servers of NeMo Gym 0.7.0


def episode(body: dict[str, Any], **end: Any) -> dict[str, Any]:
    return {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], **end}


async def test_an_environment_server_runs_and_verifies_an_episode(site: Site) -> None:
    asked: list[dict[str, Any]] = []

    def run(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        return episode(body, result={"response": reply, "reward": 0.25, "extracted_answer": "4"}, failure=None)

    async with agent_server(site, run) as url:
        row, events = await run_one(site, url, server_route="episode")
    assert (row["status"], row["reward"], row["turns"]) == ("completed", 0.25, 1)
    assert events[-1]["details"] == {"extracted_answer": "4"}
    [body] = asked
    assert set(body) == {"episode_id", "task"}
    assert body["episode_id"]["attempt"] == 0
    assert body["task"]["task_input"]["expected_answer"] == "4"
    assert "cs_" not in str(events)


@pytest.mark.parametrize(
    ("failure", "kind", "told"),
    [
        ({"stage": "verification"}, "verifier_error", "stage verification"),
        ({"stage": "seed"}, "environment_error", "stage seed"),
        ({"stage": "agent"}, "agent_error", "stage agent"),
        ({"failure_kind": "judge_failed", "stage": "verification"}, "judge_error", "judge_failed, stage verification"),
        ({"failure_kind": "cancelled"}, "agent_error", "cancelled"),
        ({}, "environment_error", "without kind and stage"),
    ],
)
async def test_a_failure_of_an_environment_server_has_its_kind_and_stage(
    site: Site, failure: dict[str, str], kind: str, told: str
) -> None:
    def fail(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        return episode(body, failure={"failure_reason": "no room", "terminal": False, **failure})

    async with agent_server(site, fail) as url:
        row, _ = await run_one(site, url, server_route="episode")
    assert (row["status"], row["error_kind"], row["reward"]) == ("failed", kind, None)
    assert f"({told}): no room" in row["error_message"]


@pytest.mark.parametrize("change", [{"task_id": {"taskset": "t", "task_id": "9"}}, {"result": None}])
async def test_the_reply_of_another_episode_gives_no_reward(site: Site, change: dict[str, Any]) -> None:
    def run(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        return episode(body, result={"response": reply, "reward": 1.0}) | change

    async with agent_server(site, run) as url:
        row, _ = await run_one(site, url, server_route="episode")
    assert (row["status"], row["error_kind"], row["reward"]) == ("failed", "agent_error", None)


async def test_a_failure_of_a_flat_environment_server_has_its_stage(site: Site) -> None:
    def fail(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        told = {"_ng_failure_message": "no room", "_ng_failure_stage": "verification"}
        return {"_ng_failure_class": "environment_server_failed", **told}

    async with agent_server(site, fail) as url:
        row, _ = await run_one(site, url, server_route="run")
    assert row["status"] == "failed"
    assert "(environment_server_failed, stage verification): no room" in row["error_message"]
