import asyncio
import json
import threading
import time

import pytest

from apps.gym.builtin.calculator import Calculator
from apps.gym.builtin.registry import BUILTINS
from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.protocol import ResourceServer, ToolOutput
from apps.gym.rewards import Reward
from tests.gym.verifiers.replies import response

ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}


def test_the_built_in_environments_stand_under_their_names():
    assert {"calculator", "code_exec", "exact_match", "judged"} <= set(BUILTINS)
    assert all(name == builtin.name for name, builtin in BUILTINS.items())


def test_an_attempt_goes_from_seed_to_reward():
    async def attempt():
        server: ResourceServer = InProcessServer("calculator", name="calculator")
        session = await server.seed_session(ROW, seed=7)
        tools = await session.list_tools()
        output = await session.call_tool("calculator", {"expression": "6 * 7"})
        turn = await session.respond([])
        reward = await session.verify(response("It is 42."))
        await session.close()
        return [tool["name"] for tool in tools], output, turn, reward.value

    assert asyncio.run(attempt()) == (["calculator"], ToolOutput(text='{"result": 42}'), None, 1.0)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("calculator", {"expression": "1/0"}, "calculation_error", "division by zero"),
        ("search", {}, "unknown_tool", "there is no tool named 'search'; the tools are: calculator"),
    ],
)
def test_a_refused_call_is_an_output_that_the_model_can_read(name, arguments, error, text):
    async def call():
        session = await InProcessServer("calculator", name="calculator").seed_session(ROW, seed=7)
        return await session.call_tool(name, arguments)

    output = asyncio.run(call())
    assert output.error == error
    assert json.loads(output.text) == {"error": text}


def test_an_environment_without_tools_says_so():
    async def call():
        session = await InProcessServer("exact_match", name="exact_match").seed_session(ROW, seed=7)
        return await session.list_tools(), await session.call_tool("calculator", {})

    tools, output = asyncio.run(call())
    assert tools == []
    assert output.error == "unknown_tool"
    assert "this environment has no tools" in output.text


def test_where_verification_is_off_there_is_no_reward():
    async def verify():
        session = await InProcessServer("exact_match", name="exact_match", verifies=False).seed_session({}, seed=7)
        return await session.verify(response("anything"))

    assert asyncio.run(verify()).value is None


def test_a_row_that_cannot_be_verified_is_a_verifier_error():
    async def verify():
        session = await InProcessServer("exact_match", name="exact_match").seed_session({}, seed=7)
        await session.verify(response("anything"))

    with pytest.raises(VerifierError, match="expected_answer"):
        asyncio.run(verify())


def test_an_unknown_built_in_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="no built-in environment named 'chess'"):
        InProcessServer("chess", name="chess")


def test_the_probe_is_healthy_and_lists_the_tools():
    probe = asyncio.run(InProcessServer("calculator", name="calculator").probe())
    assert probe.healthy
    assert [tool["name"] for tool in probe.tools] == ["calculator"]


def test_the_adapter_adds_next_to_nothing_to_a_call():
    async def seconds_per_call(calls: int) -> float:
        session = await InProcessServer("exact_match", name="exact_match").seed_session(ROW, seed=7)
        started = time.process_time()
        for _ in range(calls):
            await session.list_tools()
            await session.respond([])
        return (time.process_time() - started) / (2 * calls)

    assert min(asyncio.run(seconds_per_call(2_000)) for _ in range(3)) < 20e-6


class Slow(BUILTINS["exact_match"]):
    """A built-in whose methods may take their time."""

    name = "slow"
    quick = False
    pause = 0.0

    def call_tool(self, name, arguments):
        time.sleep(arguments["seconds"])
        return threading.current_thread().name

    def verify(self, response):
        time.sleep(self.pause)
        return super().verify(response)


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setitem(BUILTINS, "slow", Slow)
    return InProcessServer("slow", name="slow", call_timeout=0.2, verify_timeout=0.2)


def test_a_built_in_that_is_not_quick_works_in_a_thread(slow):
    async def attempt():
        session = await slow.seed_session(ROW, seed=7)
        return await session.call_tool("wait", {"seconds": 0}), (await session.verify(response("42"))).value

    assert asyncio.run(attempt()) == (ToolOutput(text="built-in"), 1.0)


def test_a_tool_that_takes_too_long_is_a_tool_error_while_the_loop_goes_on(slow):
    async def attempt():
        session = await slow.seed_session(ROW, seed=7)
        turns = 0
        calling = asyncio.ensure_future(session.call_tool("wait", {"seconds": 0.5}))
        while not calling.done():
            await asyncio.sleep(0.01)
            turns += 1
        return calling.result(), turns

    output, turns = asyncio.run(attempt())
    assert output == ToolOutput(text='{"error":"the tool gave no result within 0.2 s"}', error="timeout")
    assert turns > 5


def test_a_verification_that_takes_too_long_is_timed_out(slow, monkeypatch):
    monkeypatch.setattr(Slow, "pause", 0.5)

    async def attempt():
        session = await slow.seed_session(ROW, seed=7)
        await session.verify(response("42"))

    with pytest.raises(TimedOut, match=r"slow: verification took longer than 0\.2 s"):
        asyncio.run(attempt())


class Broken(BUILTINS["exact_match"]):
    """A built-in with a bug in its verifier."""

    name = "broken"

    def verify(self, response):
        return 1 / 0


def test_a_bug_in_a_verifier_is_a_verifier_error_and_no_reward(monkeypatch, caplog):
    monkeypatch.setitem(BUILTINS, "broken", Broken)

    async def verify():
        session = await InProcessServer("broken", name="lab").seed_session(ROW, seed=7)
        await session.verify(response("42"))

    with pytest.raises(VerifierError, match="lab: ZeroDivisionError: division by zero") as broken:
        asyncio.run(verify())
    assert not broken.value.passing
    assert "its verifier broke" in caplog.text


def test_an_attempt_of_more_than_100_000_characters_is_verified_beside_the_event_loop(monkeypatch):
    threads = []

    def verify(self, response):
        threads.append(threading.current_thread() is threading.main_thread())
        return Reward(value=1.0)

    monkeypatch.setattr(Calculator, "verify", verify)

    async def run():
        session = await InProcessServer("calculator", name="calculator").seed_session({}, seed=1)
        for text in ("42", "4" * 100_001):
            assert (await session.verify(response(text))).value == 1.0

    asyncio.run(run())
    assert threads == [True, False]
