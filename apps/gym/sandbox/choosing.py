"""Which sandbox this process has: what the operator chose, at most so many executions at once, and whether it works."""

import logging
import os
import threading
import time
from pathlib import Path

import msgspec

from apps.gym.redaction.shortening import cut_to_end
from apps.gym.sandbox.bubblewrap import Bubblewrap
from apps.gym.sandbox.memory_groups import Share, TotalMemory
from apps.gym.sandbox.protocol import Limits, NotStarted, Outcome, Sandbox, SandboxMissing
from apps.gym.sandbox.unprivileged import UnprivilegedProcess

logger = logging.getLogger(__name__)

_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_TRIES = 10
"""Of one execution whose sandbox does not start; together they wait 4.5 s."""
_REST_SECONDS = 0.1
_ASKED_AGAIN = 30.0
"""Seconds after which a sandbox that did not work is looked at anew: somebody may have installed it."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is bubblewrap, unprivileged_process or none. `python` empty is the machine's own; `at_once` 0 is four
    executions for each processor, since much of one is waiting for the kernel. `memory_mb` is for all of them
    together, where a control group can be made: 0 is no bound, None is as much as each of so many may have."""

    kind: str = "bubblewrap"
    python: str = ""
    at_once: int = 0
    memory_mb: int | None = None

    @property
    def turns(self) -> int:
        return self.at_once or 4 * (os.cpu_count() or 1)

    @property
    def memory(self) -> int:
        """In bytes."""
        return self.turns * Limits().together if self.memory_mb is None else self.memory_mb * 1024**2


class ChosenSandbox:
    """One for the process. Executions beyond `at_once` wait for their turn."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._turns = threading.BoundedSemaphore(choice.turns)
        self._memory = TotalMemory(choice.memory if choice.kind != "none" else 0)
        self._looking = threading.Lock()
        self._problem: str | None = None
        self._looked_at = 0.0

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008 - frozen
        """Raises SandboxMissing."""
        if problem := self.find_problem():
            raise SandboxMissing(problem)
        with self._turns:
            for waits in range(_TRIES):
                # Other executions may hold the memory that this one needs to start. Theirs ends within their limits.
                time.sleep(waits * _REST_SECONDS)
                try:
                    return self._run(program, stdin, limits)
                except NotStarted as problem:
                    told = str(problem)
            raise SandboxMissing(f"the sandbox did not start in {_TRIES} tries: {told}")

    def close(self) -> None:
        """What runs goes on; a further execution begins anew."""
        self._memory.close()

    def _run(self, program: str, stdin: bytes, limits: Limits) -> Outcome:
        with self._memory.share(limits.together) as share:
            return self._open(share).run(program, stdin=stdin, limits=limits)

    def describe(self) -> str:
        """For pages and logs: which one it is, and what it lacks."""
        try:
            sandbox = self._open()
        except SandboxMissing as missing:
            return str(missing)
        told = f"{sandbox.name}, which is no sandbox: {sandbox.lacks}" if sandbox.lacks else sandbox.name
        return f"{told}; {self._memory.describe()}"

    def find_problem(self) -> str:
        """Why nothing can be run here, or nothing: tried once, and again after a while where it did not work."""
        with self._looking:
            if self._problem is None or (self._problem and time.monotonic() - self._looked_at > _ASKED_AGAIN):
                self._problem = self._try()
                self._looked_at = time.monotonic()
            return self._problem

    def _try(self) -> str:
        try:
            sandbox = self._open()
            outcome = self._run("print(6 * 7)", b"", Limits())
        except NotStarted as problem:
            return f"code cannot be run here: {self.choice.kind} does not work on this machine: {problem}"
        except (SandboxMissing, OSError) as missing:
            return f"code cannot be run here: {missing}"
        if outcome.ending == "too_much_memory":
            return "code cannot be run here: GYMWEB_SANDBOX_MEMORY_MB is too little for a single program"
        if outcome.stdout.strip() != b"42":
            told = cut_to_end(outcome.stderr.decode(errors="replace").strip(), 500) or f"status {outcome.status}"
            return f"code cannot be run here: {sandbox.name} does not work on this machine: {told}"
        if sandbox.lacks:
            logger.warning("GYMWEB_SANDBOX is %s, which is no sandbox: %s", sandbox.name, sandbox.lacks)
        return ""

    def _open(self, share: Share | None = None) -> Sandbox:
        if self.choice.kind == "none":
            raise SandboxMissing("GYMWEB_SANDBOX is none")
        python = self.choice.python or next((path for path in _PYTHONS if Path(path).exists()), "")
        if not python:
            raise SandboxMissing(f"none of {', '.join(_PYTHONS)} is there: name one in GYMWEB_SANDBOX_PYTHON")
        kind = Bubblewrap if self.choice.kind == "bubblewrap" else UnprivilegedProcess
        return kind(python=python, share=share)


_chosen = [ChosenSandbox(Choice())]


def choose_sandbox(choice: Choice) -> None:
    """For this whole process; what runs already goes on in the one before, whose group goes with the last of it."""
    _chosen[0] = ChosenSandbox(choice)


def the_sandbox() -> ChosenSandbox:
    return _chosen[0]
