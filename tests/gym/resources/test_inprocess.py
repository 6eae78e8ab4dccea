import asyncio
import json
import threading

import pytest

from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.registry import BUILTINS
from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ResourceServer, ToolOutput
from apps.gym.rewards import Reward
from tests.deadlines import DEADLINE, wait_until_async
from tests.gym.verifiers.replies import response

ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}


def test_built_in_environments_are_found_by_name():
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
        server = UnverifiedServer(InProcessServer("exact_match", name="exact_match"))
        session = await server.seed_session({}, seed=7)
        return await session.verify(response("anything"))

    assert asyncio.run(verify()).value is None


def test_a_row_that_cannot_be_verified_is_a_verifier_error():
    async def verify():
        session = await InProcessServer("exact_match", name="exact_match").seed_session({}, seed=7)
        await session.verify(response("anything"))

    with pytest.raises(VerifierError, match="expected_answer"):
        asyncio.run(verify())


def test_an_unknown_built_in_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="unknown environment 'chess'"):
        InProcessServer("chess", name="chess")


def test_the_probe_is_healthy_and_lists_the_tools():
    probe = asyncio.run(InProcessServer("calculator", name="calculator").probe())
    assert probe.healthy
    assert [tool["name"] for tool in probe.tools] == ["calculator"]


def test_a_quick_built_in_answers_without_a_thread_and_without_waiting_for_the_loop():
    """`make bench BENCH=calls` holds the time that the adapter adds to a call to a budget."""

    def run_without_a_loop(coroutine):
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        return ended.value.value

    server = InProcessServer("calculator", name="calculator")
    session = run_without_a_loop(server.seed_session(ROW, seed=7))
    assert [tool["name"] for tool in run_without_a_loop(session.list_tools())] == ["calculator"]
    assert run_without_a_loop(session.call_tool("calculator", {"expression": "6 * 7"})).text == '{"result": 42}'
    assert run_without_a_loop(session.respond([])) is None
    assert run_without_a_loop(session.verify(response("It is 42."))).value == 1.0


class Slow(BUILTINS["exact_match"]):
    """A built-in whose methods wait until they may go on."""

    name = "slow"
    runs_on_loop = False

    def call_tool(self, name, arguments):
        self.began.set()
        assert self.go_on.wait(DEADLINE)
        return threading.current_thread().name

    def verify(self, response):
        assert self.go_on.wait(DEADLINE)
        return super().verify(response)


@pytest.fixture
def go_on(monkeypatch):
    """The methods of the built-in "slow" wait for it."""
    monkeypatch.setitem(BUILTINS, "slow", Slow)
    monkeypatch.setattr(Slow, "began", threading.Event(), raising=False)
    monkeypatch.setattr(Slow, "go_on", threading.Event(), raising=False)
    yield Slow.go_on
    Slow.go_on.set()


def slow(seconds):
    return InProcessServer("slow", name="slow", call_timeout=seconds, verify_timeout=seconds)


def test_a_built_in_that_is_not_quick_works_in_a_thread_while_the_loop_goes_on(go_on):
    async def attempt():
        session = await slow(DEADLINE).seed_session(ROW, seed=7)
        calling = asyncio.ensure_future(session.call_tool("wait", {}))
        await wait_until_async(Slow.began.is_set)
        go_on.set()
        return await calling, (await session.verify(response("42"))).value

    assert asyncio.run(attempt()) == (ToolOutput(text="built-in"), 1.0)


def test_a_tool_that_takes_too_long_is_a_tool_error(go_on):
    async def attempt():
        session = await slow(0.2).seed_session(ROW, seed=7)
        return await session.call_tool("wait", {})

    output = asyncio.run(attempt())
    assert output == ToolOutput(text='{"error": "the tool gave no result within 0.2 s"}', error="timeout")


def test_a_verification_that_takes_too_long_is_timed_out(go_on):
    async def attempt():
        session = await slow(0.2).seed_session(ROW, seed=7)
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
    assert not broken.value.transient
    assert "its verifier failed" in caplog.text


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
