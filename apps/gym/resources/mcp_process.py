"""The streams of an MCP server process, with limits on everything that it writes.

The official package's implementation stores all error output in a file, logs each invalid line with a traceback, and
has no limit on the length of a line.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from apps.gym.redaction.shortening import keep_end

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

_LONGEST_LINE = 16 * 1024 * 1024
_MOST_UNASKED = 5_000
"""Maximum consecutive lines that are not responses: notifications, and invalid messages."""
_CHUNK = 64 * 1024
_REST_SECONDS = 0.01
"""Seconds between reads of the error output, so that a flood of it waits in the pipe."""
_FLUSH_SECONDS = 0.5
_LEAVING_SECONDS = 2.0
_POLL_SECONDS = 0.01
_LAST_LINES = 8
_LAST_CHARACTERS = 1_000


class ProcessStreams:
    """A process with its streams. `ended` receives the reason if the process is stopped for its output."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], ended: Callable[[str], None]) -> None:
        self._words = words
        self._environment = environment
        self._ended = ended
        self._tail = b""

    def last_words(self) -> str:
        """Return the last lines of the error output."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return keep_end("\n".join(lines[-_LAST_LINES:]), _LAST_CHARACTERS)

    @contextlib.asynccontextmanager
    async def open(self) -> "AsyncIterator[TransportStreams]":
        """Start the process. Raises OSError if it cannot be started."""
        incoming, received = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        sent, to_send = anyio.create_memory_object_stream["SessionMessage"](0)
        errors, errors_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                env=dict(self._environment),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors_end,
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        except BaseException:
            os.close(errors)
            for stream in (incoming, received, sent, to_send):
                stream.close()
            raise
        finally:
            os.close(errors_end)
        reading = asyncio.create_task(self._read(process, incoming))
        writing = asyncio.create_task(_write(process, to_send, incoming))
        listening = asyncio.create_task(self._read_errors(errors))
        try:
            yield received, sent
        finally:
            received.close()
            sent.close()
            try:
                await asyncio.wait([writing], timeout=_FLUSH_SECONDS)
                await _stop(process)
                # Read its last output to the end, unless another process holds the pipe open.
                await asyncio.wait([listening], timeout=_FLUSH_SECONDS)
            finally:
                # Kill the process immediately if this task is cancelled.
                if process.returncode is None:
                    _signal(process, signal.SIGKILL)
                for task in (reading, writing, listening):
                    task.cancel()
                for stream in (incoming, to_send):
                    stream.close()
                # A descendant may hold a pipe open.
                process._transport.close()  # type: ignore[attr-defined]
            await asyncio.gather(reading, writing, listening, return_exceptions=True)

    async def _read(
        self, process: asyncio.subprocess.Process, incoming: "MemoryObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        problem = ""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            problem = await self._receive(process, incoming)
        if problem:
            self._ended(problem)
            _signal(process, signal.SIGKILL)
        incoming.close()
        # A process that flushes its remaining output must not block on a full pipe.
        while process.stdout is not None and await process.stdout.read(_CHUNK):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _receive(
        self, process: asyncio.subprocess.Process, incoming: "MemoryObjectSendStream[SessionMessage | Exception]"
    ) -> str:
        """Pass messages on until the end of the output. Return why reading stopped early, or nothing."""
        import mcp_types
        from mcp.shared.message import SessionMessage

        unasked = 0
        while process.stdout is not None:
            try:
                line = await process.stdout.readline()
            except ValueError:
                return f"it wrote a line of more than {_LONGEST_LINE:,} bytes and was stopped"
            if not line:
                break
            unasked += 1
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                message = None
            if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                unasked = 0
            if unasked > _MOST_UNASKED:
                return f"it wrote more than {_MOST_UNASKED:,} unexpected lines and was stopped"
            # No attempt needs a server's notifications.
            if message is not None and not isinstance(message, mcp_types.JSONRPCNotification):
                await incoming.send(SessionMessage(message))
        return ""

    async def _read_errors(self, errors: int) -> None:
        reader = asyncio.StreamReader(limit=_CHUNK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(errors, "rb", buffering=0)
        )
        try:
            while chunk := await reader.read(_CHUNK):
                self._tail = (self._tail + chunk)[-4 * _LAST_CHARACTERS :]
                await asyncio.sleep(_REST_SECONDS)
        finally:
            transport.close()


async def _write(
    process: asyncio.subprocess.Process,
    to_send: "MemoryObjectReceiveStream[SessionMessage]",
    incoming: "MemoryObjectSendStream[SessionMessage | Exception]",
) -> None:
    if process.stdin is None:
        return
    try:
        async for one in to_send:
            process.stdin.write(f"{one.message.model_dump_json(by_alias=True, exclude_unset=True)}\n".encode())
            await process.stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        # This stops waiting for an answer.
        incoming.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop the process by the protocol: close its input, wait, terminate it, then kill it with all its children."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if await _has_left(process):
            return
        _signal(process, number)
    await _has_left(process)


async def _has_left(process: asyncio.subprocess.Process) -> bool:
    # Not process.wait(), which also waits for its pipes: a descendant may hold them open.
    ends = asyncio.get_running_loop().time() + _LEAVING_SECONDS
    while process.returncode is None and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
