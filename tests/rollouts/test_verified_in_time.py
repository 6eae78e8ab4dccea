"""A verified reward is kept if the time limit of the rollout ends only afterwards."""

import asyncio

import pytest

from apps.gym.loop.agent_loop import Harness
from apps.gym.resources.own_verifier import ToollessServer
from apps.gym.traces.events import Verification
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.running import Setting, run_rollout
from tests.gym.traces import said, turn


class Listener:
    def add_event(self, claim, event): ...

    def has_space(self):
        return True

    def count_failure(self, claim, setting, failure):
        return None


class SlowDriver:
    retried_failures = 0

    def __init__(self, verifies: bool) -> None:
        self._verifies = verifies

    async def events(self):
        yield turn(said("4"))
        if self._verifies:
            yield Verification(reward=1.0, stop_reason="max_steps")
        await asyncio.sleep(60)

    def take_judge_calls(self):
        return []


@pytest.mark.parametrize(
    ("verifies", "expected"), [(True, ("completed", 1.0, "")), (False, ("failed", None, "timed_out"))]
)
def test_only_a_verified_reward_outlives_the_time_limit(
    verifies: bool, expected: tuple[str, float | None, str]
) -> None:
    setting = Setting(
        policy_model_id=1,
        environment_id=1,
        policy=None,
        server=ToollessServer(name="none"),
        harness=Harness(),
        rollout_timeout=0.2,
    )
    end = asyncio.run(
        run_rollout(
            claim=Claim(1, 1, 7, 1, 0, 0, 1, 0, 0),
            row={"responses_create_params": {"input": "Hi"}},
            setting=setting,
            listener=Listener(),
            make_driver=lambda elapsed: SlowDriver(verifies),
        )
    )
    assert (end.status, end.reward, end.error_kind) == expected
