"""In place of a sandbox, where the operator says so by name: a process with bounds of its own, and no walls."""

import os
import shutil
import tempfile

from apps.gym.sandbox.boot import Start, boot_arguments, watch_start
from apps.gym.sandbox.bounded_output import run_bounded
from apps.gym.sandbox.memory_groups import Share
from apps.gym.sandbox.protocol import Limits, Outcome, SandboxMissing

_NOBODY = "65534"


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
        command = boot_arguments(self._python, given, limits, start, bound_processes=False)
        if os.geteuid() == 0:
            setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
            if setpriv is None:
                raise SandboxMissing("setpriv is not installed, and code is never run as root")
            command = [
                setpriv,
                "--reuid",
                _NOBODY,
                "--regid",
                _NOBODY,
                "--clear-groups",
                "--pdeathsig",
                "KILL",
                "--",
                *command,
            ]
        # Nobody is somebody else where root starts it, and does not reach folders that are closed to others.
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
