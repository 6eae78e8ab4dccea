"""The health check of a server that has scores and no chat, as vLLM with `--runner pooling`."""

import asyncio

import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.wires.endpoint_checks import Endpoint, check_endpoint
from tests.gym.verifiers.test_reward_model import pooled
from tests.plain_policies import plain_policy

LIST = {"object": "list", "data": [{"id": "rm", "owned_by": "vllm", "max_model_len": 400}]}


async def check(status):
    """Check a server whose /pooling has this status; all other paths but the list of models are missing."""

    async def models(request):
        return web.json_response(LIST)

    async def answer(request):
        return web.json_response(pooled([0.5]), status=status)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/pooling", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    policy = plain_policy(outbound, base_urls=[url], model_name="rm", wire="chat", max_tries=1)
    told = {"has_key": False, "lists_models": True, "tells_version": False, "wants_tokens": False}
    try:
        return await check_endpoint(
            Endpoint(sender=policy.sender, policy=policy, model_name="rm", secrets=[], sampling={}, **told)
        )
    finally:
        await outbound.close()
        await runner.cleanup()


@pytest.mark.parametrize(("status", "tool_call"), [(200, "not_applicable"), (404, "failed")])
def test_a_server_with_scores_only_is_healthy(status, tool_call):
    checkup = asyncio.run(check(status))
    assert {one.name: one.status for one in checkup.checks}["tool_call"] == tool_call
    assert bool(checkup.failures) is (status != 200)
