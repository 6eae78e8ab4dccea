"""The sandbox of this process: the operator's choice, a limit on concurrent executions, and a check that it works."""

import logging
import os
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from apps.gym.redaction.shortening import keep_end
from apps.gym.sandbox.boot import Start, boot_arguments, watch_start
from apps.gym.sandbox.bounded_output import run_bounded
from apps.gym.sandbox.bubblewrap import Bubblewrap, as_nobody
from apps.gym.sandbox.memory_groups import Share, TotalMemory
from apps.gym.sandbox.protocol import Limits, NotStarted, Outcome, Sandbox, SandboxMissing


class UnprivilegedProcess:
    name = "unprivileged_process"
    lacks = (
        "code reaches the network, reads every file that its user may read (the project among them), writes where that "
        "user may, sees and signals that user's processes, may leave processes behind, and may start any number of them"
    )

    def __init__(self, *, python: str, share: Share | None = None) -> None:
        self._python = python
        self._share = share

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008 - frozen
        with watch_start() as start:
            return start.check(self._run(program.encode(errors="replace"), stdin, limits, start))

    def _run(self, given: bytes, stdin: bytes, limits: Limits, start: Start) -> Outcome:
        booted = boot_arguments(self._python, given, limits, start, bound_processes=False)
        command = [*as_nobody("--pdeathsig", "KILL"), *booted]
        # If started by root, the program runs as the user nobody, who cannot reach private folders.
        open_to_all = os.geteuid() == 0
        with tempfile.TemporaryDirectory(prefix="gymweb-code-", dir="/tmp" if open_to_all else None) as folder:  # noqa: S108
            os.chmod(folder, 0o777 if open_to_all else 0o700)  # noqa: PTH101
            env = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder, "PATH": "/usr/bin:/bin"}
            try:
                return run_bounded(
                    command,
                    stdin=given + stdin,
                    limits=limits,
                    env=env,
                    cwd=folder,
                    pass_fds=[start.descriptor],
                    share=self._share,
                )
            except FileNotFoundError as error:
                raise SandboxMissing(f"{error.filename} is not there") from None


logger = logging.getLogger(__name__)

_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_TRIES = 10
"""Tries of one execution whose sandbox does not start. Together they wait 4.5 s."""
_REST_SECONDS = 0.1
_ASKED_AGAIN = 30.0
"""Seconds until a failed sandbox is checked again, because it may have been installed."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings.

    `kind` is bubblewrap, unprivileged_process or none. An empty `python` means the machine's own. `at_once` 0 means
    four executions per processor, because executions mostly wait for the kernel. `memory_mb` limits all executions
    together if a control group can be made: 0 means no limit, None means the limit of one execution times `at_once`.
    """

    kind: str = "bubblewrap"
    python: str = ""
    at_once: int = 0
    memory_mb: int | None = None

    @property
    def turns(self) -> int:
        return self.at_once or 4 * (os.cpu_count() or 1)

    @property
    def memory(self) -> int:
        """Return the memory limit of all executions together, in bytes."""
        return self.turns * Limits().together if self.memory_mb is None else self.memory_mb * 1024**2


class ChosenSandbox:
    """The sandbox of this process. Executions beyond `at_once` wait for their turn."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._turns = threading.BoundedSemaphore(choice.turns)
        self._memory = TotalMemory(choice.memory if choice.kind != "none" else 0)
        self._looking = threading.Lock()
        self._problem: str | None = None
        self._looked_at = 0.0

    def run(self, program: str, *, stdin: bytes = b"", limits: Limits = Limits()) -> Outcome:  # noqa: B008 - frozen
        """Run a program. Raises SandboxMissing."""
        if problem := self.find_problem():
            raise SandboxMissing(problem)
        with self._turns:
            for waits in range(_TRIES):
                # Other executions may hold the memory that this one needs to start. They end within their limits.
                time.sleep(waits * _REST_SECONDS)
                try:
                    return self._run(program, stdin, limits)
                except NotStarted as problem:
                    told = str(problem)
            raise SandboxMissing(f"the sandbox did not start in {_TRIES} tries: {told}")

    def close(self) -> None:
        """Release the memory group. Running executions continue; a new one creates a new group."""
        self._memory.close()

    def _run(self, program: str, stdin: bytes, limits: Limits) -> Outcome:
        with self._memory.share(limits.together) as share:
            return self._open(share).run(program, stdin=stdin, limits=limits)

    def describe(self) -> str:
        """Return a description for pages and logs: the kind of sandbox, and what it does not isolate."""
        try:
            sandbox = self._open()
        except SandboxMissing as missing:
            return str(missing)
        told = f"{sandbox.name}, which does not isolate: {sandbox.lacks}" if sandbox.lacks else sandbox.name
        return f"{told}; {self._memory.describe()}"

    def find_problem(self) -> str:
        """Return why no code can run here, or an empty text.

        A working sandbox is checked once, a failed one again after a while.
        """
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
            return "code cannot be run here: GYMWEB_SANDBOX_MEMORY_MB is too small for one program"
        if outcome.stdout.strip() != b"42":
            told = keep_end(outcome.stderr.decode(errors="replace").strip(), 500) or f"status {outcome.status}"
            return f"code cannot be run here: {sandbox.name} does not work on this machine: {told}"
        if sandbox.lacks:
            logger.warning("GYMWEB_SANDBOX is %s, which does not isolate: %s", sandbox.name, sandbox.lacks)
        return ""

    def _open(self, share: Share | None = None) -> Sandbox:
        if self.choice.kind == "none":
            raise SandboxMissing("GYMWEB_SANDBOX is none")
        python = find_python(self.choice)
        kind = Bubblewrap if self.choice.kind == "bubblewrap" else UnprivilegedProcess
        return kind(python=python, share=share)


def find_python(choice: Choice) -> str:
    """Return the interpreter for programs in the sandbox. Raises SandboxMissing."""
    python = choice.python or next((path for path in _PYTHONS if Path(path).exists()), "")
    if not python:
        raise SandboxMissing(f"none of {', '.join(_PYTHONS)} is there: name one in GYMWEB_SANDBOX_PYTHON")
    return python


_chosen = [ChosenSandbox(Choice())]


def choose_sandbox(choice: Choice) -> None:
    """Choose the sandbox of this process.

    Running executions continue in the earlier group, which is removed after the last one.
    """
    _chosen[0] = ChosenSandbox(choice)


def the_sandbox() -> ChosenSandbox:
    return _chosen[0]
