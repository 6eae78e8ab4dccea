"""A captured attempt without a network: waits, ends and clocks."""

import asyncio
import time

import pytest

from apps.gym.calls.flow_control import EndpointPaused, Gate
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.capture.capture_wires import CapturedRequest
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import CallRefused, Command
from apps.gym.capture.captured_events import MAX_UNSTORED, EventQueue
from apps.gym.errors import AgentFailed, AgentLost, PolicyError, TimedOut
from apps.gym.loop.agent_loop import Harness
from apps.gym.resources.protocol import Session
from apps.gym.rewards import Reward
from apps.gym.traces.events import AgentEnd, ModelCall, Prompt, Verification
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.protocol import Reply
from tests.deadlines import DEADLINE, wait_until_async

FINISH = Command(command="finish")


class Environment(Session):
    """Counts its open sessions."""

    name = "environment"

    def __init__(self):
        self.open = 0

    async def seed_session(self, row, *, seed):
        self.open += 1
        return self

    async def verify(self, response):
        return Reward(value=1.0)

    async def close(self):
        self.open -= 1


class Policy:
    """Answers each call once it may: `errors` are raised first."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asks = []
        self.free = asyncio.Event()
        self.free.set()
        self.asked = 0

    async def ask(self, ask):
        self.asked += 1
        self.asks.append(ask)
        await self.free.wait()
        if self.errors:
            raise self.errors.pop(0)
        return Reply(items=[message("assistant", "four")], finish_reason="stop")


class Site:
    """An attempt, and the events that its consumer has stored."""

    def __init__(self, policy, *, lease_seconds=DEADLINE, seconds=DEADLINE, stored=None, **harness):
        self.environment, self.events = Environment(), []
        self.limit = TimeLimit(seconds)
        self.attempt = CapturedAttempt(
            row={"responses_create_params": {"input": "2 + 2"}},
            server=self.environment,
            policy=policy,
            harness=Harness(**harness),
            seed=1,
            elapsed=lambda: 0.0,
            name="1",
            stored=stored or self._stored,
            lease_seconds=lease_seconds,
        )
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def _stored(self):
        await self.may_store.wait()

    async def run(self):
        with self.limit:
            async for event in self.attempt.events():
                self.events.append(event)

    async def __aenter__(self):
        self.running = asyncio.create_task(self.run())
        await self.attempt.opened
        return self

    async def __aexit__(self, *_):
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        assert self.environment.open == 0
        assert len(asyncio.all_tasks()) == 1, "tasks are left"

    def ask(self, text, **fields):
        request = CapturedRequest(items=[message("user", text)], tools=[], sampling={}, model="m")
        given = {"wire": "chat", "digest": text.encode(), "is_repeated": False, **fields}
        return self.attempt.ask(request, **given)

    def kinds(self):
        return [type(event) for event in self.events]


def run(work):
    async def limited():
        async with asyncio.timeout(DEADLINE):
            await work()

    asyncio.run(limited())


def test_calls_behind_a_full_queue_go_on_although_one_of_them_fails_and_one_is_cancelled():
    async def work():
        queue = EventQueue()
        puts = [asyncio.create_task(queue.put(Prompt(items=[]))) for _ in range(MAX_UNSTORED)]
        await asyncio.sleep(0)
        waits = [asyncio.create_task(queue.wait_for_room()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waits)
        waits[0].cancel()
        _, taken = await queue.get(asyncio.get_running_loop().time())
        taken.set_result(None)
        # One event made room. It lets all of them go on: the first to do so may never report an event.
        await asyncio.gather(*waits[1:])
        queue.close()
        done = await asyncio.gather(*puts, return_exceptions=True)
        assert [one for one in done if one is True] == [True]
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) == MAX_UNSTORED - 1
        assert await queue.put(Prompt(items=[])) is False

    run(work)


def test_a_finish_that_waits_for_a_call_is_refused_if_the_attempt_is_cancelled():
    async def work():
        policy = Policy()
        policy.free.clear()
        async with Site(policy) as site:
            call = site.ask("2 + 2")
            await wait_until_async(lambda: policy.asked == 1)
            ending = asyncio.create_task(site.attempt.end(FINISH))
            await wait_until_async(lambda: site.attempt.is_closed)
            site.running.cancel()
            with pytest.raises(CallRefused):
                await ending
            site.attempt.mark_served(call, is_whole=False)

    run(work)


def test_a_finish_waits_for_calls_and_names_unserved_ones():
    async def work():
        policy = Policy()
        policy.free.clear()
        async with Site(policy) as site:
            received, lost = site.ask("one"), site.ask("two")
            repeated = site.ask("one", is_repeated=True)
            assert repeated is received
            ending = asyncio.create_task(site.attempt.end(FINISH))
            await wait_until_async(lambda: site.attempt.is_closed)
            assert await asyncio.wait([ending], timeout=0.05) == (set(), {ending})
            policy.free.set()
            await asyncio.wait([received.reply, lost.reply])
            site.attempt.mark_served(repeated, is_whole=True)
            # The connection of the first request ends later, without the reply that the repeat has received.
            site.attempt.mark_served(received, is_whole=False)
            site.attempt.mark_served(lost, is_whole=False)
            end = await ending
            assert (await site.attempt.end(FINISH)) is end
            assert end.unserved == [lost.number]
            with pytest.raises(CallRefused) as refused:
                await site.attempt.end(Command(command="finish", answer="5"))
            assert refused.value.status == 409
            await asyncio.wait([site.running])
            assert [kind for kind in site.kinds() if kind in (ModelCall, AgentEnd, Verification)] == [
                ModelCall,
                ModelCall,
                AgentEnd,
                Verification,
            ]
            assert TraceGraph(site.events).effective_calls == {received.number}

    run(work)


def test_tools_of_an_agent_are_never_strict_if_so_configured():
    async def work():
        policy = Policy()
        tool = {"type": "function", "name": "add", "parameters": {}}
        request = CapturedRequest(
            items=[message("user", "2 + 2")], tools=[{**tool, "strict": True}], sampling={}, model="m"
        )
        async with Site(policy, strict_tools="never") as site:
            call = site.attempt.ask(request, wire="chat", digest=b"1", is_repeated=False)
            await call.reply
            site.attempt.mark_served(call, is_whole=True)
        assert [(ask.tools, ask.strict) for ask in policy.asks] == [([tool], False)]
        assert [event.tools_in for event in site.events if isinstance(event, ModelCall)] == [[tool]]

    run(work)


def test_an_attempt_that_no_agent_took_returns_to_the_queue():
    async def work():
        async with Site(Policy()) as site:
            site.attempt.abandon()
            with pytest.raises(AgentLost) as lost:
                await site.running
            assert lost.value.refused_by == "rate_limit"
            with pytest.raises(CallRefused):
                site.ask("late")

    run(work)


def test_a_silent_agent_is_lost_after_its_lease_but_not_during_a_call():
    async def work():
        policy = Policy()
        policy.free.clear()
        async with Site(policy, lease_seconds=0.05) as site:
            call = site.ask("2 + 2")
            assert await asyncio.wait([site.running], timeout=0.2) == (set(), {site.running})
            policy.free.set()
            await call.reply
            site.attempt.mark_served(call, is_whole=True)
            with pytest.raises(AgentLost):
                await site.running

    run(work)


def test_while_an_agent_waits_to_repeat_a_throttled_call_neither_clock_nor_lease_run():
    async def work():
        throttled = PolicyError("throttled").refused("rate_limit", retry_after=0.3)
        async with Site(Policy(throttled), lease_seconds=0.15, seconds=0.25, max_steps=1) as site:
            call = site.ask("2 + 2")
            with pytest.raises(PolicyError):
                await call.reply
            site.attempt.mark_served(call, is_whole=False)
            # Longer than the lease, and longer than the time limit.
            assert await asyncio.wait([site.running], timeout=0.3) == (set(), {site.running})
            # It was no step: the only one is still left.
            call = site.ask("2 + 2", is_repeated=True)
            await call.reply
            site.attempt.mark_served(call, is_whole=True)
            assert site.limit.waited > 0.2
            await site.attempt.end(FINISH)
            await site.running

    run(work)


async def fail(site, text):
    call = site.ask(text)
    with pytest.raises((PolicyError, TimedOut)):
        await call.reply
    site.attempt.mark_served(call, is_whole=False)


@pytest.mark.parametrize("problem", [PolicyError("broken"), TimedOut("too slow")])
@pytest.mark.parametrize("command", ["finish", "fail"])
def test_an_attempt_whose_model_failed_has_the_error_of_the_model(problem, command):
    async def work():
        async with Site(Policy(problem)) as site:
            await fail(site, "2 + 2")
            await site.attempt.end(Command(command=command, answer="5"))
            with pytest.raises(type(problem)) as raised:
                await site.running
            assert raised.value is problem
            [failed] = site.events[-1].failed_calls
            assert (failed.call, failed.kind, failed.message) == (1, problem.kind, str(problem))
            assert Verification not in site.kinds()

    run(work)


@pytest.mark.parametrize(("answer", "is_verified"), [("four", True), ("five", False), ("", False)])
def test_a_parallel_call_that_failed_leaves_the_answer_of_the_other(answer, is_verified):
    async def work():
        policy = Policy(PolicyError("broken"))
        policy.free.clear()
        async with Site(policy) as site:
            failed, answered = site.ask("one"), site.ask("two")
            await wait_until_async(lambda: policy.asked == 2)
            policy.free.set()
            await asyncio.wait([failed.reply, answered.reply])
            site.attempt.mark_served(failed, is_whole=False)
            site.attempt.mark_served(answered, is_whole=True)
            await site.attempt.end(Command(command="finish", answer=answer))
            await asyncio.wait([site.running])
            assert (Verification in site.kinds()) is is_verified
            assert isinstance(site.running.exception(), PolicyError) is not is_verified

    run(work)


def test_an_agent_that_waits_for_a_failed_model_until_its_time_limit_is_not_verified():
    async def work():
        async with Site(Policy(PolicyError("broken"))) as site:
            await fail(site, "2 + 2")
            site.attempt.reach_limit("time_limit")
            with pytest.raises(PolicyError):
                await site.running

    run(work)


def test_an_attempt_at_its_limit_of_calls_is_verified_although_one_failed():
    async def work():
        policy = Policy()
        async with Site(policy, max_steps=1) as site:
            call = site.ask("2 + 2")
            await call.reply
            site.attempt.mark_served(call, is_whole=True)
            with pytest.raises(CallRefused):
                site.ask("more")
            await site.running
            assert site.events[-1].stop_reason == "max_steps"

    run(work)


def test_sampling_that_gymweb_refuses_is_an_error_of_the_agent():
    async def work():
        async with Site(Policy(SamplingRefused("Sampling cannot set n."))) as site:
            await fail(site, "2 + 2")
            site.attempt.refusal = "Sampling cannot set n."
            await site.attempt.end(FINISH)
            with pytest.raises(AgentFailed, match="Sampling cannot set n"):
                await site.running

    run(work)


def test_a_call_with_patience_leaves_the_gate_in_time_and_says_when_to_come_back():
    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        began = time.monotonic()
        with pytest.raises(EndpointPaused) as paused:
            await gate.send(_never, str, patience=0.05)
        assert 0.04 < time.monotonic() - began < DEADLINE
        assert paused.value.retry_after is None
        gate._paused_until = time.monotonic() + 50
        with pytest.raises(EndpointPaused) as paused:
            await gate.send(_never, str, patience=DEADLINE if DEADLINE < 50 else 20.0)
        # At once, because it would not be its turn in time.
        assert 49 < paused.value.retry_after <= 50

    run(work)


async def _never():
    raise AssertionError("the endpoint takes no calls")
