"""A verified reward is kept, whatever fails afterwards, with the loop and with captured agents."""

import asyncio

import pytest

from apps.gym.capture.capture_wires import CapturedRequest
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import Command
from apps.gym.errors import AgentFailed, EnvironmentFault
from apps.gym.loop.agent_loop import Harness
from apps.gym.resources.own_verifier import ToollessServer
from apps.gym.resources.protocol import Session
from apps.gym.rewards import Reward
from apps.gym.traces.events import Verification
from apps.gym.traces.items import message
from apps.gym.wires.protocol import Reply
from apps.rollouts.engine.agents.hosted_attempts import HostedAttempt
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.running import Setting, run_rollout
from tests.gym.traces import said, turn


class Listener:
    def add_event(self, claim, event): ...

    def has_space(self):
        return True

    def count_failure(self, claim, setting, failure):
        return None


class Driver:
    """Fails with `problem`; without one it takes longer than the limit."""

    retried_failures = 0

    def __init__(self, verifies: bool, problem: Exception | None) -> None:
        self._verifies, self._problem = verifies, problem

    async def events(self):
        yield turn(said("4"))
        if self._verifies:
            yield Verification(reward=1.0, stop_reason="max_steps")
        if self._problem:
            raise self._problem
        await asyncio.sleep(60)

    def take_judge_calls(self):
        return []


class BrokenSession(Session):
    async def verify(self, response):
        return Reward(value=1.0)

    async def close(self):
        raise EnvironmentFault("The server does not close.")


class BrokenServer(ToollessServer):
    async def seed_session(self, row, *, seed):
        return BrokenSession()


class Policy:
    async def ask(self, ask):
        return Reply(items=[said("4")], finish_reason="stop")


def end_of(make_driver=None, server=None):
    setting = Setting(
        policy_model_id=1,
        environment_id=1,
        policy=Policy(),
        server=server or ToollessServer(name="none"),
        harness=Harness(),
        rollout_timeout=0.2 if make_driver and not server else 60.0,
    )
    claim, row = Claim(1, 1, 7, 1, 0, 0, 1, 0, 0), {"responses_create_params": {"input": "Hi"}}
    run = run_rollout(claim=claim, row=row, setting=setting, listener=Listener(), make_driver=make_driver)
    return asyncio.run(run)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (None, "timed_out"),
        (EnvironmentFault("The server does not close."), "environment_error"),
        (AgentFailed("The container does not stop."), "agent_error"),
        (ValueError("a bug"), "environment_error"),
    ],
)
def test_only_a_verified_reward_outlives_what_fails_afterwards(problem: Exception | None, kind: str) -> None:
    for verifies, expected in ((True, ("completed", 1.0, "")), (False, ("failed", None, kind))):
        end = end_of(lambda elapsed, verifies=verifies: Driver(verifies, problem))
        assert (end.status, end.reward, end.error_kind) == expected


def test_an_environment_that_does_not_close_takes_no_reward_of_the_loop() -> None:
    end = end_of(server=BrokenServer(name="none"))
    assert (end.status, end.reward, end.stop_reason) == ("completed", 1.0, "answered")


@pytest.mark.parametrize("own", [None, 0.5])
def test_an_environment_that_does_not_close_takes_no_reward_of_a_captured_agent(own: float | None) -> None:
    """`own` is the reward of an agent server that verifies itself."""

    async def stored():
        return None

    def driver(elapsed):
        captured = CapturedAttempt(
            row={"responses_create_params": {"input": "Hi"}},
            server=BrokenServer(name="none"),
            policy=Policy(),
            harness=Harness(),
            seed=1,
            elapsed=elapsed,
            name="1",
            stored=stored,
            lease_seconds=60.0,
        )
        return Hosted(captured, own).drive(elapsed)

    end = end_of(driver, BrokenServer(name="none"))
    assert (end.status, end.reward, end.stop_reason) == ("completed", own or 1.0, "answered")


class Hosted(HostedAttempt):
    def __init__(self, captured, own):
        super().__init__(captured)
        self._own = own

    async def _execute(self):
        request = CapturedRequest(items=[message("user", "Hi")], tools=[], sampling={}, model="m")
        call = self._captured.ask(request, wire="chat", digest=b"1", is_repeated=False)
        await call.reply
        self._captured.mark_served(call, is_whole=True)
        return Command(command="finish", reward=None if self._own is None else Reward(value=self._own))
