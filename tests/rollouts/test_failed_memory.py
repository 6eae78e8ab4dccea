"""A rollout that failed leaves no garbage: its conversation may be large, and full collections are rare."""

import asyncio
import gc

from apps.gym.errors import PolicyError
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.own_verifier import ToollessServer
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.running import Setting, run_rollout


class Failing:
    async def ask(self, ask):
        raise PolicyError("Oops.")


class Listener:
    def add_event(self, claim, event): ...

    def has_space(self):
        return True

    def count_failure(self, claim, setting, failure):
        return None


def test_an_attempt_that_failed_is_freed_without_the_garbage_collector():
    claim = Claim(1, 1, 7, 1, 0, 0, 1, 0, 0)
    row = {"responses_create_params": {"input": "Hi"}}

    async def work():
        setting = Setting(
            policy_model_id=1,
            environment_id=1,
            policy=Failing(),
            server=ToollessServer(name="none"),
            harness=Harness(),
            rollout_timeout=10.0,
        )
        return await run_rollout(claim=claim, row=row, setting=setting, listener=Listener())

    def attempts():
        return {id(found) for found in gc.get_objects() if type(found) is Attempt}

    gc.collect()
    gc.disable()
    try:
        # The tracebacks of tests that failed before keep theirs.
        before = attempts()
        assert asyncio.run(work()).status == "failed"
        assert attempts() <= before
    finally:
        gc.enable()
