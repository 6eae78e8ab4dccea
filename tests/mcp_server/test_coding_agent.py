"""A coding agent's client, the official package, over a real server: from a question to its answer by tools alone."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.clients.site import Site, run
from tests.deadlines import DEADLINE

SEED = "import django; django.setup(); from tests.mcp_server.seed import main; main()"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seeded(site: Site) -> dict[str, Any]:
    return json.loads(run(site.environment, "-c", SEED))


@asynccontextmanager
async def connect(site: Site, key: str, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE) as http,
        Client(streamable_http_client(f"{site.base}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def ask(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    reply: dict[str, Any] = result.structured_content
    assert json.loads(result.content[0].text) == reply
    assert len(result.content[0].text.encode()) <= 20_000
    return reply


def text_of(reply: dict[str, Any], marked: dict[str, str]) -> str:
    about = reply["untrusted_content"]
    found = re.fullmatch(re.escape(about["begin"]) + "(.*)" + re.escape(about["end"]), marked["untrusted"], re.DOTALL)
    assert found, marked
    return found[1]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_answers_which_tasks_got_worse_and_why(site: Site, seeded: dict[str, Any], mode: str) -> None:
    asyncio.run(find_worse_tasks(site, seeded, mode))


async def find_worse_tasks(site: Site, seeded: dict[str, Any], mode: str) -> None:
    first, second = seeded["collections"]
    async with connect(site, seeded["key"], mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "untrusted" in (client.instructions or "")
        listed = await ask(client, "list_collections", dataset="products")
        assert {row["id"] for row in listed["results"]} == {first, second}

        whole = await ask(client, "compare_collections", collection=first, other=second)
        assert (whole["regressed"], whole["improved"], whole["no_longer_solved"]) == (2, 0, 2)

        worse: list[dict[str, Any]] = []
        place: dict[str, str] = {}
        while True:
            page = await ask(client, "list_task_changes", collection=first, other=second, limit=1, **place)
            worse += page["results"]
            if not page["next_cursor"]:
                break
            place = {"cursor": page["next_cursor"]}
        assert [change["difference"] for change in worse] == [-1.0, -1.0]
        assert len({change["task"] for change in worse}) == 2

        for change in worse:
            given = {"rollout": change["rollout"], "other": change["other_rollout"]}
            pair = await ask(client, "compare_rollouts", **given)
            assert pair["rewards"] == [1.0, 0.0]
            parted = next(row for row in pair["rows"] if row["number"] == pair["diverges_at"])
            sides = [text_of(pair, parted[side]["text"]) for side in ("one", "other")]
            assert [parted[side]["kind"] for side in ("one", "other")] == ["call", "call"]
            assert ("17 * 23" in sides[0], "17 + 23" in sides[1]) == (True, True)

            read = await ask(client, "read_trace", rollout=change["other_rollout"])
            verdict = next(step for step in read["steps"] if step["kind"] == "verdict")
            assert "compared with 391" in text_of(read, verdict["text"])
            assert read["next_cursor"] is None
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
