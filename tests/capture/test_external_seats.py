"""Idle attempts of external agents take neither all seats of a worker, nor make another collection wait unexplained."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymweb_client import ApiError, AsyncGymWeb

from tests.capture.test_external_agents import ended, plan, pytestmark, take  # noqa: F401
from tests.clients.site import Site, open_site
from tests.deadlines import DEADLINE


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Site]:
    """A site with four seats, of which external agents may take three."""
    with open_site(tmp_path, "--seats", "4", GYMWEB_WORKER_GRACE_SECONDS="1") as opened:
        yield opened


async def held(gym: AsyncGymWeb, collection: int) -> list[str]:
    """Return why a collection waits, once there is a reason."""
    async with asyncio.timeout(DEADLINE):
        while not (reasons := (await gym.request("GET", f"collections/{collection}/"))["held_back_by"]):
            await asyncio.sleep(0.1)
    return list(reasons)


async def test_idle_external_attempts_leave_a_seat(small: Site) -> None:
    async with AsyncGymWeb(small.base, small.key) as gym:
        idle = await plan(gym, small, tasks=4)
        for _ in range(3):
            await take(gym, idle)
        with pytest.raises(ApiError) as refused:
            await gym.request(
                "POST", "attempts/", {"collection": idle, "wait_seconds": 1}, idempotency_key=uuid.uuid4().hex
            )
        assert (refused.value.status, refused.value.problem["type"]) == (503, "urn:gymweb:problem:no-seat")
        built_in = await plan(gym, small, tasks=3, agent={"kind": "builtin"})
        rows: list[Any] = [row async for row in gym.rollouts(collection=built_in)]
        assert [(await ended(gym, row["id"]))["status"] for row in rows] == ["completed"] * 3
        waiting = await plan(gym, small)
        slug = (await gym.request("GET", f"collections/{idle}/"))["agent"]
        wanted = f"workers: all 3 seats for external agents are taken: 3 by collection {idle} (external agent {slug})"
        assert [reason.startswith(wanted) for reason in await held(gym, waiting)] == [True]
