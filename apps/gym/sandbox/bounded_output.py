"""Run a command with limits on its time and output. Excess output costs neither memory nor time."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

from apps.gym.sandbox.memory_groups import Share
from apps.gym.sandbox.protocol import Ending, Limits, Outcome

_PIECE = 65_536


def run_bounded(
    command: Sequence[str],
    *,
    stdin: bytes,
    limits: Limits,
    env: Mapping[str, str],
    cwd: str = "/",
    pass_fds: Sequence[int] = (),
    share: Share | None = None,
) -> Outcome:
    """Run a command and stop its process group at the end. Raises OSError if it cannot start."""
    began = time.monotonic()
    process = subprocess.Popen(  # noqa: S603 - the callers' own commands
        share.joined(command) if share else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
        bufsize=0,
    )
    try:
        reading = _Reading(process, stdin, limits)
        ending = reading.until(began + limits.seconds)
    finally:
        _end(process)
    if share and ending == "exited" and share.was_full():
        ending = "too_much_memory"
    return Outcome(
        ending=ending,
        status=process.returncode,
        stdout=bytes(reading.kept["stdout"]),
        stderr=bytes(reading.kept["stderr"]),
        cut=reading.cut,
        seconds=time.monotonic() - began,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    # Also after the process has ended: its children are in its group. Its id is not reused until it is waited for,
    # which only `poll` may have done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


class _Reading:
    """The three pipes of a process, read and written together."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.cut = False
        self._read = 0
        self._limits = limits
        self._left = memoryview(stdin)
        self._input: IO[bytes] = process.stdin
        self._selector = selectors.PollSelector()
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        os.set_blocking(self._input.fileno(), False)
        self._selector.register(self._input, selectors.EVENT_WRITE, "stdin")

    def until(self, deadline: float) -> Ending:
        with self._selector:
            while self._selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return "too_long"
                for key, _ in self._selector.select(left):
                    self._write() if key.data == "stdin" else self._take(key)
                    if self._read > self._limits.most_output:
                        return "too_much_output"
        return "exited"

    def _write(self) -> None:
        try:
            written = os.write(self._input.fileno(), self._left[:_PIECE]) if self._left else 0
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = self._left[:0]
        else:
            self._left = self._left[written:]
        if not self._left:
            self._selector.unregister(self._input)
            self._input.close()

    def _take(self, key: selectors.SelectorKey) -> None:
        try:
            piece = os.read(key.fd, _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._selector.unregister(key.fileobj)
            return
        kept = self.kept[key.data]
        room = self._limits.output - len(kept)
        kept += piece[:room]
        self._read += len(piece)
        self.cut = self.cut or len(piece) > room
