"""The stored sampling of captured agents is that of the request which the model got."""

from typing import Any

import anthropic
import pytest
from gymweb_client import AsyncGymWeb

from tests.capture.test_external_agents import client_of, ended, plan, take
from tests.clients.site import Site
from tests.deadlines import DEADLINE

pytestmark = pytest.mark.slow
EXTRA = {"min_p": 0.05, "top_p": 0.5, "temperature": 0.6}
QUESTION: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]


async def test_agents_and_the_extra_body_of_the_model_set_the_stored_sampling(site: Site) -> None:
    """The agent's min_p and logit_bias are not sent to the model. The note says so, and min_p is that of the model."""
    async with AsyncGymWeb(site.base, site.key) as gym:
        offer = await take(gym, await plan(gym, site, model={"extra_body": EXTRA}))
        async with client_of(offer) as client:
            await client.chat.completions.create(
                model="m",
                messages=QUESTION,
                temperature=0.7,
                logit_bias={"5": -100},
                extra_body={"top_p": 0.9, "min_p": 0.2},
            )
            await client.responses.create(model="m", input="What is 3 + 3?", top_p=0.8)
        base = offer["openai_base_url"].removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base, api_key=offer["api_key"], timeout=DEADLINE) as other:
            await other.messages.create(model="m", max_tokens=64, messages=QUESTION, extra_body={"top_k": 20})
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
        await ended(gym, offer["rollout"])
        events = (await gym.request("GET", f"rollouts/{offer['rollout']}/trace/"))["events"]
    calls = [event["event"] for event in events if event["kind"] == "model_call"]
    unsampled = {"seed", "max_output_tokens"}
    assert [
        (call["wire"], {name: value for name, value in call["sampling"].items() if name not in unsampled})
        for call in calls
    ] == [
        ("chat", {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05}),
        ("responses", {"temperature": 0.6, "top_p": 0.8, "min_p": 0.05}),
        ("messages", {"temperature": 0.6, "top_p": 0.5, "min_p": 0.05, "top_k": 20}),
    ]
    assert {"min_p was dropped", "logit_bias was dropped"} <= set(calls[0]["notes"])
