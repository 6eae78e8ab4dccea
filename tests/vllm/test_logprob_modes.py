"""The measured mode of log probabilities of a real server."""

import asyncio

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.wires.endpoint_checks import Check
from apps.policies.setup_checks import check_logprob_mode
from tests.plain_policies import plain_policy
from tests.vllm.serving import TINY, Bench, Vllm

pytestmark = pytest.mark.slow


async def measure(server: Vllm) -> tuple[Check, dict]:
    outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
    policy = plain_policy(outbound, base_urls=[server.base_url], model_name=server.name, wire="chat")
    try:
        return await check_logprob_mode(policy, "raw_logprobs")
    finally:
        await outbound.close()


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_the_mode_of_a_server_is_measured(bench: Bench, mode: str) -> None:
    bench.stop()
    name, options = mode.removesuffix("_logprobs"), f"auto --logprobs-mode {mode}"
    server = Vllm(bench.installation, name, TINY / "half", bench.python, "--max-model-len", 1024, dtype=options)
    server.start()
    try:
        check, found = asyncio.run(measure(server))
    finally:
        assert server.stop() == 0
    assert (check.status, found) == ("ok" if mode == "raw_logprobs" else "warning", {"logprob_mode": mode})
