"""What a sandbox is: a program and its input go in, what it wrote comes out, and nothing else."""

from typing import Literal, Protocol

import msgspec

Ending = Literal["exited", "too_long", "too_much_output", "too_much_memory"]


class SandboxMissing(Exception):
    """There is nothing here that runs code safely; the text says what to do about it."""


_BESIDE = 16 * 1024**2
"""What the kernel holds for an execution besides its memory and its files."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one execution may take. `seconds` pass on the clock, `cpu_seconds` are each process's; `memory` is the bytes
    of address space of each process, `processes` counts threads too; `files` is all that it may write in bytes,
    `entries` how many files and folders; `output` is what is kept of each of its two outputs, and `most_output` what
    ends it."""

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
        """The bytes for all processes of it and its files, where they can be counted together: enough for one process
        that takes all it may."""
        return self.memory + self.files + _BESIDE


class NotStarted(Exception):
    """The sandbox ended before the program began, for example because the machine lacked memory for it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is the exit code, below 0 the signal that ended it. The outputs are cut at the limit: `cut` says so.
    `too_much_memory` is that of all its processes together; one that reaches its own limit has a MemoryError."""

    ending: Ending
    status: int
    stdout: bytes
    stderr: bytes
    cut: bool
    seconds: float


class Sandbox(Protocol):
    name: str
    lacks: str
    """What it does not keep code from, in one sentence; empty for one that keeps it from everything listed."""

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008
        """Run a Python program, from nothing, in a sandbox of its own. Blocks. Raises SandboxMissing and NotStarted."""
        ...
