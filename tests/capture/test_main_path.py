"""Agents whose conversations fork: the reward is that of the conversation with the answer, and exports hold it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from tests.capture.test_external_agents import client_of, ended, plan, pytestmark, take  # noqa: F401
from tests.clients.site import Site
from tests.rollouts.work import serve_chat

TOOL: Any = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
SYSTEM: Any = {"role": "system", "content": "You count files."}
TASK: Any = {"role": "user", "content": "How many files are there?"}
Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    """A model that replies with the last line of the last user message that begins with "say:", or calls the tool."""

    async def handle(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        wanted = [line for one in messages for line in str(one["content"]).splitlines() if line.startswith("say:")]
        results = [one for one in messages if one["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": wanted[-1][4:] if wanted else "The answer is 4"}
        if not wanted and len(results) < 4:
            call = {"id": f"c{len(results)}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": "c", "model": "m", "choices": [choice]})

    runner, port = await serve_chat(handle)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


async def trim(ask: Ask) -> None:
    """From the third call on, older tool results are removed."""
    history = [SYSTEM, TASK]
    while True:
        results = [place for place, one in enumerate(history) if one["role"] == "tool"]
        old = set(results[:-1])
        sent = [{**one, "content": "[removed]"} if place in old else one for place, one in enumerate(history)]
        said = await ask(sent, tools=[TOOL])
        history.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return
        history += [{"role": "tool", "tool_call_id": one.id, "content": f"listing {one.id}"} for one in said.tool_calls]


async def plan_first(ask: Ask) -> None:
    """A planner, then an executor whose prompt quotes the plan."""
    said = await ask(
        [{"role": "system", "content": "You plan."}, {"role": "user", "content": "Plan.\nsay:List, count."}]
    )
    await ask([SYSTEM, {"role": "user", "content": f"{TASK['content']} Plan: {said.content}\nsay:4"}])


async def scratchpad(ask: Ask) -> None:
    """One user message that grows."""
    pad = TASK["content"]
    for wanted in ("ls", "wc", "4"):
        said = await ask([{"role": "user", "content": f"{pad}\nsay:{wanted}"}])
        pad += f"\n{said.content} -> ok"


async def checked(ask: Ask) -> None:
    """Another prompt checks the answer at the end, and says so."""
    said = await ask([SYSTEM, {**TASK, "content": "How many?\nsay:4"}], extra_headers={"x-gymweb-role": "main"})
    check = [
        {"role": "system", "content": "You check."},
        {"role": "user", "content": f"Is {said.content} safe?\nsay:yes"},
    ]
    await ask(check, extra_headers={"x-gymweb-conversation": "guard", "x-gymweb-role": "auxiliary"})


async def run(site: Site, agent: Callable[[Ask], Awaitable[None]], **finish: Any) -> tuple[Any, list[Any], Any]:
    """Run an agent. Return its rollout, the calls of its trace, and what may be exported of its collection."""
    async with AsyncGymWeb(site.base, site.key) as gym, model() as url:
        collection = await plan(gym, site, model={"base_url": url}, max_attempts=1)
        offer = await take(gym, collection)
        async with client_of(offer) as client:

            async def ask(messages: Any, **fields: Any) -> Any:
                reply = await client.chat.completions.create(model="m", messages=messages, **fields)
                return reply.choices[0].message

            await agent(ask)
        await gym.request("POST", f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"], **finish})
        row = await ended(gym, offer["rollout"])
        events = [event["event"] for event in await gym.trace(row["id"])]
        order = {"collection": collection, "format": "trl_sft", "filters": {"min_reward": None}}
        preview = await gym.request("POST", "exports/preview/", order)
        return row, [event for event in events if event["type"] == "model_call"], preview


@pytest.mark.parametrize("agent", [trim, plan_first, scratchpad, checked])
@pytest.mark.parametrize("finish", [{}, {"answer": "4"}], ids=["without answer", "with answer"])
async def test_the_reward_is_that_of_the_conversation_with_the_answer(
    site: Site, agent: Callable[[Ask], Awaitable[None]], finish: dict[str, Any]
) -> None:
    row, calls, preview = await run(site, agent, **finish)
    assert (row["status"], row["reward"], row["ambiguous_path"]) == ("completed", 1.0, False), row["error_message"]
    [exported] = preview["rows"]
    assert exported["messages"][-1]["content"].endswith("4"), exported
    lineages = [call["lineage"] for call in calls]
    assert lineages == ([1] * len(calls) if agent in (trim, scratchpad) else [1, 2])


async def test_an_answer_that_no_call_holds_is_left_out_of_training(site: Site) -> None:
    row, _, preview = await run(site, plan_first, answer="5")
    assert (row["reward"], row["ambiguous_path"]) == (0.0, True)
    assert preview["rows"] == []
    assert [one["reason"] for one in preview["trainability"]["left_out"]] == ["ambiguous_path"]


async def test_the_call_that_finish_names_ends_the_main_path(site: Site) -> None:
    row, _, preview = await run(site, plan_first, answer="List, count.", call=2)
    assert row["ambiguous_path"] is False
    assert preview["rows"][0]["messages"][-1]["content"] == "4"


async def test_an_unknown_role_gets_an_error(site: Site) -> None:
    async def agent(ask: Ask) -> None:
        with pytest.raises(openai.BadRequestError, match="Choose one of: conversation, main, subagent, auxiliary"):
            await ask([TASK], extra_headers={"x-gymweb-role": "boss"})
        await ask([{**TASK, "content": "say:4"}])

    row, calls, _ = await run(site, agent)
    assert (row["reward"], len(calls)) == (1.0, 1)
