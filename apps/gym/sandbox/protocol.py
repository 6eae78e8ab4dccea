"""The sandbox interface: a program and its input go in, and only its output comes out."""

from typing import Literal, Protocol

import msgspec

Ending = Literal["exited", "too_long", "too_much_output", "too_much_memory"]


class SandboxMissing(Exception):
    """Raised if code cannot be run safely here. The message says what to do."""


_BESIDE = 16 * 1024**2
"""Bytes that the kernel needs for an execution besides its memory and files."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one execution.

    `seconds` is wall-clock time, `cpu_seconds` is per process; `memory` is bytes of address space per process;
    `processes` includes threads; `files` is bytes written in total, `entries` the number of files and folders; `output`
    is the kept size of each output stream, and `most_output` the size that stops it.
    """

    seconds: float = 10.0
    cpu_seconds: int = 5
    memory: int = 256 * 1024**2
    processes: int = 4
    files: int = 16 * 1024**2
    entries: int = 1024
    output: int = 16_000
    most_output: int = 1024**2

    @property
    def together(self) -> int:
        """Return the bytes for all processes and files together, if accounted: enough for one process at its limits."""
        return self.memory + self.files + _BESIDE


class NotStarted(Exception):
    """Raised if the sandbox ended before the program began, for example for lack of memory."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an execution.

    `status` is the exit code, or the negative signal number. `cut` is True if the outputs exceeded their limit.
    `too_much_memory` refers to all processes together; one that reaches its own limit gets a MemoryError.
    """

    ending: Ending
    status: int
    stdout: bytes
    stderr: bytes
    cut: bool
    seconds: float


class Sandbox(Protocol):
    name: str
    lacks: str
    """What the sandbox does not isolate, in one sentence; empty if it isolates everything."""

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008
        """Run a Python program in a fresh sandbox. Blocks. Raises SandboxMissing and NotStarted."""
        ...
