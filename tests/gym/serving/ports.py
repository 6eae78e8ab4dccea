"""Something served on a real port, for tests of one event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.serving.own_port import serve_port


@asynccontextmanager
async def on_a_port(served, *, max_body: int = 2**20, seconds: float = 30.0) -> AsyncIterator[tuple[int, Outbound]]:
    """The port, and a way out that may call it."""
    stop, taken = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_port(
            served,
            host="127.0.0.1",
            port=0,
            max_body=max_body,
            seconds=seconds,
            stop=stop,
            started=taken.set_result,
        )
    )
    done, _ = await asyncio.wait([serving, taken], return_when=asyncio.FIRST_COMPLETED)
    if serving in done:
        await serving
    outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
    try:
        yield taken.result(), outbound
    finally:
        await outbound.close()
        stop.set()
        await serving
