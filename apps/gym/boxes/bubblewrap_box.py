"""A box made with bubblewrap: namespaces around each command, and a working folder on disk.

It has no network except a connection to the capture server, the system's programs and the mounts (read-only), and
none of this process's files or variables. Its processes end with this process.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from apps.gym.boxes.box_folders import BoxFolders, measure_folder, read_file, remove_folder
from apps.gym.boxes.box_launcher import PORT, launcher_arguments
from apps.gym.boxes.namespaces import FOLDERS, WORK, Passed, wrap
from apps.gym.boxes.protocol import BoxFailed, BoxLimits, Exit
from apps.gym.sandbox.bubblewrap import UNPRIVILEGED, find_program
from apps.gym.sandbox.memory_groups import Share, TotalMemory
from apps.gym.sandbox.protocol import SandboxMissing

MEASURE_SECONDS = 5.0
"""Seconds between measurements of a box's files."""
LAST_OUTPUT_SECONDS = 5.0
"""Seconds within which killed processes must have closed their output."""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
_PIECE = 65_536

_memory = TotalMemory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def box_owner() -> int | None:
    """Return the unprivileged user of boxes if this process runs as root; otherwise None: its own user."""
    return int(UNPRIVILEGED) if os.geteuid() == 0 else None


class BubblewrapBox:
    """See Box. `socket` is the Unix socket of the capture server; `hidden` are folders that no mount may show."""

    workdir = WORK
    url = f"http://127.0.0.1:{PORT}"

    def __init__(
        self,
        *,
        folders: BoxFolders,
        socket: str,
        python: str,
        mounts: Sequence[str] = (),
        hidden: Sequence[str] = (),
        limits: BoxLimits = BoxLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._folders, self._socket, self._python = folders, socket, str(Path(python).resolve())
        self._mounts, self._hidden, self._limits = mounts, hidden, limits
        self._folder: Path | None = None
        self._has_run = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        try:
            find_program("bwrap")
            self._folder = self._folders.make(*FOLDERS)
        except (SandboxMissing, OSError) as problem:
            raise BoxFailed(f"The sandbox of the agent cannot start: {problem}") from None

    async def upload(self, path: str, content: bytes) -> None:
        place = self._inside
        if self._has_run:
            raise BoxFailed("Files can only be written before the first command.")
        *above, _ = Path(path).parts
        for part in above:
            place /= part
            if not place.exists():
                place.mkdir(mode=0o700)
                self._folders.give(place)
        file = self._inside / path
        file.write_bytes(content)
        file.chmod(0o600)
        self._folders.give(file)

    async def download(self, path: str, limit: int) -> bytes | None:
        return await asyncio.to_thread(read_file, self._inside, path, limit)

    async def stop(self) -> None:
        folder, self._folder = self._folder, None
        self._kill()
        if folder is not None:
            await asyncio.to_thread(remove_folder, folder)

    async def exec(self, command: Sequence[str], variables: Mapping[str, str]) -> Exit:
        folder, self._has_run = self._inside.parent, True
        reading, started = os.pipe()
        try:
            with _memory.share(self._limits.memory) if self._limits.memory else nullcontext() as share:
                process = await self._start(command, variables, started, share)
                ended = await self._wait(process, folder)
            os.set_blocking(reading, False)
            has_started = bool(os.read(reading, 1))
        finally:
            os.close(reading)
        if not has_started:
            told = ended.stderr.decode(errors="replace").strip()[-500:]
            raise BoxFailed(f"The sandbox of the agent did not start: {told or f'status {ended.status}'}")
        return ended

    @property
    def _inside(self) -> Path:
        if self._folder is None:
            raise BoxFailed("The box is not running.")
        return self._folder / "work"

    async def _start(
        self, command: Sequence[str], variables: Mapping[str, str], started: int, share: Share | None
    ) -> asyncio.subprocess.Process:
        passed, limits = Passed(), self._limits
        passed.add(started)
        try:
            wrapped = wrap(
                passed,
                folder=self._inside.parent,
                socket=self._socket,
                python=self._python,
                mounts=self._mounts,
                hidden=self._hidden,
                variables=variables,
            )
            wrapped += launcher_arguments(
                self._python, processes=limits.processes, largest=limits.files, started=started
            )
            self._process = await asyncio.create_subprocess_exec(
                *(share.joined(wrapped) if share else wrapped),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                pass_fds=passed.descriptors,
                start_new_session=True,
            )
        except (SandboxMissing, OSError) as problem:
            # For example because an argument is larger than the kernel allows.
            raise BoxFailed(f"The command of the agent cannot start: {problem}") from None
        finally:
            passed.close()
        return self._process

    async def _wait(self, process: asyncio.subprocess.Process, folder: Path) -> Exit:
        """Return when the command has ended, or kill its processes."""
        assert process.stdout is not None
        assert process.stderr is not None
        head, tail = bytearray(), bytearray()
        reading = asyncio.gather(
            _read(process.stdout, head, self._limits.output, from_end=False),
            _read(process.stderr, tail, self._limits.output, from_end=True),
        )
        watching = asyncio.ensure_future(self._watch(folder))
        waiting = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait([waiting, watching], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            self._kill()
            await asyncio.wait([waiting])
            # Processes hold the pipes open until they have ended.
            await asyncio.wait([reading], timeout=LAST_OUTPUT_SECONDS)
            reading.cancel()
        status = waiting.result()
        return Exit(status=status if status >= 0 else 128 - status, stdout=bytes(head), stderr=bytes(tail))

    async def _watch(self, folder: Path) -> None:
        """Raise BoxFailed when the files are too large."""
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            if await asyncio.to_thread(measure_folder, folder) > self._limits.files:
                raise BoxFailed(f"The agent wrote more than {self._limits.files // 1024**2:,} MB of files.")

    def _kill(self) -> None:
        """Kill the process group. The namespaces end with it, and with them every process in the box."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


async def _read(stream: asyncio.StreamReader, kept: bytearray, limit: int, *, from_end: bool) -> None:
    """Read a stream to its end. Keep its first bytes, or its last ones."""
    while piece := await stream.read(_PIECE):
        if from_end:
            kept += piece
            del kept[:-limit]
        else:
            kept += piece[: limit - len(kept)]
