"""A captured agent that works as our own loop does gets the same tokens from a real server."""

import asyncio
import json
from typing import Any

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.capture.capture_wires import ChatWire
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import Command, outcome
from apps.gym.loop.agent_loop import Attempt, Harness, compose_prompt
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.chat_turns import chat_messages
from apps.gym.traces.events import TraceUnion, Verification
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import TaskRow
from apps.gym.traces.segments import join_calls, stored_tokens
from apps.gym.wires.chat import chat_tool
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.protocol import Policy
from scripts.tiny_policy.tasks import draw_rows
from tests.plain_policies import plain_policy
from tests.vllm.serving import Vllm

pytestmark = pytest.mark.slow
HARNESS = Harness(sampling={"temperature": 0.0, "max_output_tokens": 120}, max_steps=4)
TASKS = 6


async def run_own_loop(row: TaskRow, policy: Policy) -> list[TraceUnion]:
    attempt = Attempt(row=row, policy=policy, **_shared())
    return [event async for event in attempt.events()]


async def run_captured(row: TaskRow, policy: Policy) -> list[TraceUnion]:
    """The events of an agent that calls the model over Chat Completions, as its only client."""

    async def stored() -> None: ...

    attempt = CapturedAttempt(row=row, policy=policy, stored=stored, **_shared())
    working = asyncio.create_task(work(attempt))
    events = [event async for event in attempt.events()]
    await working
    return events


async def work(attempt: CapturedAttempt) -> None:
    await attempt.opened
    messages: list[dict[str, Any]] = chat_messages(compose_prompt(attempt.row, attempt.harness))
    wire, tools = ChatWire(), [chat_tool(tool) for tool in attempt.tools]
    while True:
        body = {"model": "any", "messages": messages, "tools": tools, "temperature": 1.5}
        request = wire.read(body, attempt.responses)
        call = attempt.ask(request, wire=wire.name, digest=str(len(messages)).encode(), is_repeated=False)
        said = wire.write(await outcome(call.reply), request, "x")["choices"][0]["message"]
        attempt.mark_served(call, is_whole=True)
        messages.append(said)
        for one in said.get("tool_calls") or ():
            result = await attempt.call_tool(one["function"]["name"], json.loads(one["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": result.output})
        if not said.get("tool_calls"):
            await attempt.end(Command(command="finish"))
            return


def _shared() -> dict[str, Any]:
    server = InProcessServer("calculator", name="calculator")
    return {"server": server, "harness": HARNESS, "seed": 3, "elapsed": lambda: 0.0, "name": "captured"}


def test_a_captured_conversation_has_the_tokens_of_our_own_loop(strong: Vllm, show) -> None:
    async def compare() -> None:
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        policy = plain_policy(
            outbound,
            base_urls=[strong.base_url],
            model_name=strong.name,
            wire="chat",
            dialect=Dialect(asks_tokens=True),
            max_tries=2,
        )
        differences, ids, turns = [0.0], 0, 0
        try:
            for row in draw_rows(TASKS, seed=5, held_out=True):
                own, captured = await run_own_loop(row, policy), await run_captured(row, policy)
                line = TraceGraph(captured).main
                mine, theirs = join_calls(stored_tokens(own)), join_calls(stored_tokens(line))
                assert [segment.input_ids for segment in mine] == [segment.input_ids for segment in theirs]
                assert [segment.mask for segment in mine] == [segment.mask for segment in theirs]
                for one, other in zip(mine, theirs, strict=True):
                    differences += [abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)]
                    ids += len(one.input_ids)
                turns += sum(len(segment.calls) for segment in mine)
                rewards = [event.reward for event in (own[-1], captured[-1]) if isinstance(event, Verification)]
                assert len(rewards) == 2
                assert rewards[0] == rewards[1]
        finally:
            await outbound.close()
        show(tasks=TASKS, turns=turns, ids=ids, largest_difference_of_a_logprob=max(differences))
        assert turns >= 2 * TASKS
        assert max(differences) <= 1e-4

    asyncio.run(compare())
