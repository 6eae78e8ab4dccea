"""Environments of every adapter and with every verifier, served over HTTP: the traces and rewards of in process."""

import asyncio
import sys

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.judging.judge import Judge
from apps.gym.resources.mcp import McpServer
from apps.gym.resources.mcp_client import Command
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.own_verifier import ToollessServer, VerifiedServer
from apps.gym.resources.server_calls import Caller
from apps.gym.serving.served_environment import serve_environment
from apps.gym.traces.events import JudgeCall, ToolResult, Verification
from apps.gym.traces.items import item_type
from apps.gym.verifiers.examples import EXAMPLES
from apps.gym.verifiers.registry import VERIFIERS
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.resources.test_mcp import LAB
from tests.gym.serving.ports import on_a_port
from tests.gym.serving.test_environment import timeless
from tests.nemo_gym import kinds, solving
from tests.nemo_gym.attempts import attempt, connect, rows_of
from tests.nemo_gym.servers import serving
from tests.walk.processes import process


async def compare(make_server, row, moves):
    """The trace that both give; `make_server` gives the same environment anew."""
    served = await serve_environment(make_server(), most_sessions=10, session_seconds=60.0)
    async with on_a_port(served) as (port, outbound):
        url = f"http://127.0.0.1:{port}"
        caller = Caller(outbound, name=served.name, base_url=url, call_timeout=120.0, max_tries=1)
        far = HttpResourceServer(caller, verify_timeout=60)
        # What a judge was asked stays with who asks it.
        here = [timeless(event) for event in await attempt(make_server(), row, moves)]
        here = [event for event in here if not isinstance(event, JudgeCall)]
        there = [timeless(event) for event in await attempt(far, row, moves)]
    assert there == here
    assert isinstance(there[-1], Verification)
    return there


def play(example):
    """The example's attempt, its calls in a first turn."""
    made = [item for item in example.output if item_type(item) == "function_call"]

    def moves(row, said, prompt):
        if made and not said:
            return made
        return [solving.says(example.reply or "Done.")]

    return moves


@pytest.mark.parametrize("kind", [kind for kind in VERIFIERS if kind != "reward_model"])  # no scripted model has scores
def test_an_environment_with_any_verifier_gives_the_same_over_http(kind):
    example = EXAMPLES[kind]
    judge = Judge(ScriptedPolicy(), name="judge", rubric="Is the answer polite?")

    def make_server():
        return VerifiedServer(
            ToollessServer(name="declared"), verifier={"type": kind, **example.parameters}, judge=judge
        )

    row = {"responses_create_params": {"input": "?"}, **example.row}
    trace = asyncio.run(compare(make_server, row, play(example)))
    assert trace[-1].components != {}
    # Nothing comes back of tools that are not there, and the scripted judge goes by length.
    if kind not in {"final_state", "tool_call_form", "llm_judge"}:
        assert trace[-1].reward == 1.0


@pytest.fixture(scope="module")
def url():
    with process(LAB, "http", "PORT") as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_an_mcp_server_gives_the_same_over_http(transport, url):
    way = {"url": url} if transport == "http" else {"command": Command([sys.executable, str(LAB), "stdio"])}
    row = {"responses_create_params": {"input": "What is 2 + 3?"}, "expected_answer": "5"}

    def moves(row, said, prompt):
        done = solving.outputs(said)
        return [solving.says(str(done[0]))] if done else [solving.call("add", {"a": 2, "b": 3})]

    async def run():
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        try:
            return await compare(
                lambda: VerifiedServer(
                    McpServer(outbound, name="lab", call_timeout=120.0, max_tries=1, **way),
                    verifier={"type": "exact_match"},
                ),
                row,
                moves,
            )
        finally:
            await outbound.close()

    trace = asyncio.run(run())
    assert [event.output for event in trace if isinstance(event, ToolResult)] == ["5"]
    assert trace[-1].reward == 1.0


@pytest.mark.parametrize(
    ("kind", "moves", "reward"),
    [
        (kinds.SESSION_STATE, solving.count, 1.0),
        (kinds.SESSION_STATE, solving.count_wrong, 0.0),
        (kinds.MULTI_STEP, solving.synonyms, 1.0),
        (kinds.MULTIREWARD, solving.one_call, 2.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_foreign_server_gives_the_same_results_through_gymweb(kind, moves, reward):
    [row, *_] = rows_of(kind.name, own=True)

    async def run():
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        try:
            async with serving(kind) as server:
                return await compare(lambda: connect(server, outbound), row, moves)
        finally:
            await outbound.close()

    trace = asyncio.run(run())
    assert trace[-1].reward == reward
