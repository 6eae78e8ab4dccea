"""The boot code of a sandbox: limit the process permanently, then run the program.

Kept as text, because files of this project are not visible inside.
"""

import contextlib
import os
import textwrap
from collections.abc import Iterator

from apps.gym.sandbox.protocol import Limits, NotStarted, Outcome

BOOT = textwrap.dedent(
    """
    import posix, resource, sys
    for name, value in zip(("AS", "CPU", "NPROC", "FSIZE", "NOFILE", "CORE"), map(int, sys.argv[1:7])):
        if value >= 0:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    posix.write(int(sys.argv[8]), b"1")
    posix.close(int(sys.argv[8]))
    source = sys.stdin.buffer.read(int(sys.argv[7])).decode()
    del sys.argv[1:], name, value, posix, resource
    exec(compile(source, "program.py", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    """
).strip()
_DESCRIPTORS = 64


class Start:
    """Records whether the boot code ran. An earlier failure is one of the sandbox, not of the program."""

    def __init__(self, descriptor: int, reading: int) -> None:
        self.descriptor = descriptor
        self._reading = reading

    def check(self, outcome: Outcome) -> Outcome:
        """Return the outcome, or raise NotStarted."""
        os.set_blocking(self._reading, False)
        with contextlib.suppress(BlockingIOError):
            if outcome.ending in {"too_much_memory", "too_much_output"} or os.read(self._reading, 1):
                return outcome
        told = outcome.stderr.decode(errors="replace").strip()[-500:]
        raise NotStarted(told or f"{outcome.ending}, status {outcome.status}, after {outcome.seconds:.1f} s")


@contextlib.contextmanager
def watch_start() -> Iterator[Start]:
    """Open the pipe into which the boot code writes a byte before it reads the program."""
    reading, writing = os.pipe()
    try:
        yield Start(writing, reading)
    finally:
        os.close(reading)
        os.close(writing)


def boot_arguments(
    python: str, program: bytes, limits: Limits, start: Start, *, bound_processes: bool = True
) -> list[str]:
    """Return the arguments of Python: no site packages, no script folder on the path, no bytecode files.

    The environment seeds text hashes, so that the same program gives the same output.
    """
    bounds = [
        limits.memory,
        limits.cpu_seconds,
        limits.processes if bound_processes else -1,
        limits.files,
        _DESCRIPTORS,
        0,
    ]
    return [python, "-s", "-S", "-P", "-B", "-c", BOOT, *map(str, bounds), str(len(program)), str(start.descriptor)]
