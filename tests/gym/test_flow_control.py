"""The gate in front of an endpoint: when calls start, and when they give up."""

import asyncio
import time

import pytest

from apps.gym.calls.flow_control import EndpointPaused, Gate
from apps.gym.calls.rate_control import Grant


async def never_sent():
    raise AssertionError("the endpoint takes no calls")


@pytest.mark.parametrize("is_trying", [True, False])
def test_calls_give_up_on_an_endpoint_that_takes_none_for_long(monkeypatch, is_trying):
    monkeypatch.setattr("apps.gym.calls.flow_control.PATIENCE", 0.05)

    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        call = asyncio.create_task(gate.send(never_sent, str))
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert not call.done()
            gate.apply(Grant(is_trying=is_trying))
        if is_trying:
            with pytest.raises(EndpointPaused):
                await call
        else:
            await asyncio.sleep(0)
            assert not call.done()
            call.cancel()

    asyncio.run(work())


async def answered():
    return Reply()


class Reply:
    status = 200


def test_a_trial_call_starts_when_it_is_granted_whatever_the_rate():
    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        for _ in range(2):
            call = asyncio.create_task(gate.send(answered, str))
            await asyncio.sleep(0)
            gate.apply(Grant(is_trying=True, rate=0.2, starts=[0.0]))
            await asyncio.wait_for(call, 2.0)

    asyncio.run(work())


def test_starts_that_come_too_late_are_dropped_and_requested_again():
    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        calls = [asyncio.create_task(gate.send(answered, str)) for _ in range(5)]
        await asyncio.sleep(0)
        assert gate.report().wanted == 5
        gate.apply(Grant(rate=20.0, starts=[0.0, 0.05, 0.1, 0.15, 0.2]))
        asyncio.get_running_loop().call_soon(time.sleep, 0.5)
        await asyncio.sleep(0.1)
        assert [call.done() for call in calls] == [False] * 5
        assert gate.report().wanted == 5
        gate.apply(Grant(rate=20.0, starts=[0.0, 0.05, 0.1, 0.15, 0.2]))
        await asyncio.wait_for(asyncio.gather(*calls), 2.0)

    asyncio.run(work())
