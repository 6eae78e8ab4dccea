"""256 attempts at once over 64 connections: every call is stored in its own rollout."""

import asyncio
import json
import re
import sqlite3
import uuid
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gymweb_client import AsyncGymWeb

from apps.rollouts.trace_payloads import unpack
from scripts.model_process import mock_model
from tests.capture.test_external_agents import ended, plan
from tests.clients.site import open_site

pytestmark = pytest.mark.slow
ATTEMPTS = 256
CONNECTIONS = 64
MARK = re.compile(r"mark-[0-9a-f]{32}")


async def test_no_call_of_256_attempts_over_64_connections_is_in_a_wrong_rollout(tmp_path: Path) -> None:
    with (
        mock_model("--pause-ms", 5, script="paced_model.py") as port,
        open_site(
            tmp_path, "--seats", str(ATTEMPTS), GYMWEB_EXTERNAL_SHARE="1", GYMWEB_WORKER_GRACE_SECONDS="1"
        ) as site,
    ):
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        timeout = aiohttp.ClientTimeout(total=None)
        async with AsyncGymWeb(site.base, site.key) as gym:
            model = {"base_url": f"http://127.0.0.1:{port}/v1"}
            collection = await plan(gym, site, tasks=ATTEMPTS, model=model, rollout_timeout=3_000)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                agents = Agents(session, site.base, site.key, collection)
                await asyncio.gather(*(agents.run() for _ in range(ATTEMPTS)))
            for rollout in agents.marks:
                assert (await ended(gym, rollout))["turns"] == 2
        assert len(agents.marks) == ATTEMPTS
        assert stored_marks(tmp_path / "gymweb.sqlite3") == {rollout: {mark} for rollout, mark in agents.marks.items()}


class Agents:
    """Agents that share connections. All attempts are open before the first one ends."""

    def __init__(self, session: aiohttp.ClientSession, base: str, key: str, collection: int) -> None:
        self.marks: dict[int, str] = {}
        self._session, self._base, self._collection = session, base, collection
        self._headers = {"Authorization": f"Bearer {key}"}
        self._all_open = asyncio.Barrier(ATTEMPTS)

    async def run(self) -> None:
        offer = await self._take()
        mark = f"mark-{uuid.uuid4().hex}"
        self.marks[offer["rollout"]] = mark
        await self._all_open.wait()
        for stream in (False, True):
            body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"{mark} {stream}"}]}
            headers = {"Authorization": f"Bearer {offer['api_key']}"}
            reply = await self._post("/capture/v1/chat/completions", body, headers)
            assert set(MARK.findall(reply)) == {mark}
        end = {"attempt": offer["attempt"]}
        await self._post(f"/api/v1/attempts/{offer['rollout']}/finish/", end, self._headers)

    async def _take(self) -> Any:
        body = {"collection": self._collection, "wait_seconds": 5}
        while True:
            key = {"Idempotency-Key": uuid.uuid4().hex}
            async with self._session.post(
                f"{self._base}/api/v1/attempts/", json=body, headers=self._headers | key
            ) as reply:
                if reply.status == 201:
                    return await reply.json()
                # The worker says with its next heartbeat that seats are free.
                assert reply.status in (204, 503), await reply.text()
            await asyncio.sleep(0.2)

    async def _post(self, path: str, body: Any, headers: dict[str, str]) -> str:
        async with self._session.post(self._base + path, json=body, headers=headers) as reply:
            content = await reply.text()
            assert reply.status in (200, 202), content
            return content


def stored_marks(database: Path) -> dict[int, set[str]]:
    """Return the marks in the stored calls of each rollout."""
    found: dict[int, set[str]] = defaultdict(set)
    with closing(sqlite3.connect(database)) as connection:
        calls = connection.execute("SELECT rollout_id, payload FROM rollouts_traceevent WHERE kind = 'model_call'")
        for rollout, payload in calls.fetchall():
            call = json.loads(unpack(payload))
            for items in (call["items_in"], call["items"]):
                marks = set(MARK.findall(json.dumps(items)))
                assert marks, "a request or reply without a mark"
                found[rollout] |= marks
    return dict(found)
