"""The gate in front of an endpoint: when calls give up."""

import asyncio

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
