"""While calls wait for replies, nothing holds their requests: thousands of long conversations would fill the memory."""

import asyncio
import tracemalloc

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.wires.sending import PlainSender

CALLS, SIZE = 10, 300_000


def test_the_request_of_a_waiting_call_is_not_kept():
    assert asyncio.run(bytes_while_waiting()) < CALLS * SIZE / 2


async def bytes_while_waiting() -> int:
    received = asyncio.Semaphore(0)
    done = asyncio.Event()

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        left = length
        while left:
            left -= len(await reader.read(min(left, 65536)))
        received.release()
        await done.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
    sender = PlainSender(outbound, base_urls=[f"http://127.0.0.1:{port}/v1"], path="/chat/completions", headers={})
    body = {"messages": [{"role": "user", "content": "a" * SIZE}]}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        calls = [asyncio.create_task(sender.send(body, session="", tries=1)) for _ in range(CALLS)]
        for _ in calls:
            await received.acquire()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    done.set()
    assert [reply.body for reply in await asyncio.gather(*calls)] == [b"{}"] * CALLS
    await outbound.close()
    server.close()
    return used
