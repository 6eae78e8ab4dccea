"""Stream a reply to an external agent while the model writes it."""

import asyncio

from aiohttp import HttpVersion11, web

from apps.gym.capture.capture_wires import TOO_LONG, StreamWriter
from apps.gym.capture.captured_commands import CallRefused, outcome
from apps.gym.capture.captured_replies import Call
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply


class DeltaStream:
    """Passes deltas on to a client as they come.

    Until the response has begun and the queue is empty, they wait in it. Later ones are written at once, without waking
    a task for each, except over HTTP/1.0.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._waiting: asyncio.Queue[Delta | None] = asyncio.Queue()
        self._begun: StreamWriter | None = None

    def add(self, delta: Delta) -> None:
        transport = self._request.transport
        if self._begun is None:
            self._waiting.put_nowait(delta)
        elif transport is not None and (content := self._begun.add(delta)):
            transport.write(b"%x\r\n%b\r\n" % (len(content), content))  # a chunk of HTTP/1.1

    async def run(self, call: Call, writer: StreamWriter) -> tuple[web.StreamResponse, bool]:
        """Stream the reply until the call is stored. Return the response, and whether it is complete.

        If the call fails after the stream began, the connection is aborted.
        """
        call.reply.add_done_callback(lambda _: self._waiting.put_nowait(None))
        response: web.StreamResponse | None = None
        try:
            while (delta := await self._waiting.get()) is not None:
                content = b"" if response else writer.begin()
                response = response or await self._begin()
                await response.write(content + writer.add(delta))
                # HTTP/1.0 has no chunks.
                if self._waiting.empty() and self._request.version >= HttpVersion11:
                    self._begun = writer
            last = writer.end(check_length(await outcome(call.reply)))
        except ConnectionError:
            raise
        except Exception:
            if response is None:
                raise
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, False
        if response is None:
            response, last = await self._begin(), writer.begin() + last
        await response.write(last)
        await response.write_eof()
        return response, True

    async def _begin(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(self._request)
        return response


def check_length(reply: Reply) -> Reply:
    """Return the reply. Raises CallRefused if the conversation is longer than the context of the model."""
    if reply.finish_reason == "context_length":
        raise CallRefused(400, "The conversation is longer than the context of the model.", TOO_LONG)
    return reply
