"""The interface of a box: an isolated working folder in which the command of an agent runs."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class BoxFailed(Exception):
    """Raised if a box cannot start, or if a command breaks a limit of its box. The message says what to do."""


class BoxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one box.

    `memory` is bytes of all processes together, where control groups work, and 0 for no limit. `files` is the bytes of
    all files together, checked every few seconds. `output` is the kept size of each output stream.
    """

    memory: int = 2 * 1024**3
    processes: int = 1024
    files: int = 2 * 1024**3
    output: int = 1_000_000


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `status` is its exit code, or 128 and the number of the signal that ended it.

    `stdout` is the start of the output, `stderr` the end of the error output.
    """

    status: int
    stdout: bytes
    stderr: bytes


class Box(Protocol):
    """One working folder. Paths are relative to it. The only network of a box is the capture server."""

    workdir: str
    """The working folder, as commands in the box see it."""
    url: str
    """The base URL of the capture server, as commands in the box see it."""

    async def start(self) -> None:
        """Make the working folder. Raises BoxFailed."""
        ...

    async def exec(self, command: Sequence[str], variables: Mapping[str, str]) -> Exit:
        """Run a command and return when all its processes have ended. Cancel it to end them. Raises BoxFailed."""
        ...

    async def upload(self, path: str, content: bytes) -> None:
        """Write a file before the first command, with its folders."""
        ...

    async def download(self, path: str, limit: int) -> bytes | None:
        """Return the first `limit` bytes of a file; None if there is no regular file. Links are not followed."""
        ...

    async def stop(self) -> None:
        """End all processes and remove the working folder. May be called twice."""
        ...
