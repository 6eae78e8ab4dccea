"""A model that throttles for longer than a captured call waits: the client gets the 429, and no time is used up."""

import asyncio
import time
import uuid

import aiohttp
import pytest
from gymweb_client import AsyncGymWeb

from apps.gym.capture.captured_attempt import THROTTLED_SECONDS
from scripts.model_process import mock_model
from tests.capture.test_external_agents import ended, plan, take
from tests.clients.site import Site

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 15.0
"""The time limit of the rollout, less than the call alone is throttled."""


async def test_a_throttled_call_gets_429_after_twenty_seconds_that_do_not_count(site: Site) -> None:
    with mock_model("--throttle", THROTTLED_SECONDS + 3, script="paced_model.py") as port:
        async with AsyncGymWeb(site.base, site.key) as gym, aiohttp.ClientSession() as session:
            model = {"base_url": f"http://127.0.0.1:{port}/v1"}
            offer = await take(gym, await plan(gym, site, model=model, rollout_timeout=LIMIT_SECONDS, max_attempts=1))
            url = f"{offer['openai_base_url']}/chat/completions"
            body = {"model": "m", "messages": [{"role": "user", "content": f"\\boxed{{4}} {uuid.uuid4()}"}]}
            began, statuses = time.monotonic(), []
            waits: list[float] = []
            while True:
                headers = {"x-stainless-retry-count": str(len(statuses))}
                async with session.post(url, json=body, headers=headers) as reply:
                    statuses.append(reply.status)
                    if reply.status == 200:
                        break
                    assert (await reply.json())["error"]["code"] == "rate_limit_exceeded"
                    waits.append(time.monotonic() - began)
                    await asyncio.sleep(float(reply.headers["Retry-After"]))
            assert set(statuses) == {200, 429}
            assert waits[0] >= 0.9 * THROTTLED_SECONDS
            await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})
            row = await ended(gym, offer["rollout"])
    assert (row["status"], row["attempt"], row["turns"]) == ("completed", 1, 1)
    assert row["duration"] < LIMIT_SECONDS
