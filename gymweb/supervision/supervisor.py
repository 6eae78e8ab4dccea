"""Start server processes, wait until they are healthy, watch them, and stop them together."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from gymweb.supervision.stray_processes import end_processes

_POLL_SECONDS, _WATCH_SECONDS, _PROBE_SECONDS = 0.2, 1.0, 2.0
_TELL_SECONDS = 15.0
_LAST_LINES = 40

Result = TypeVar("Result")


class ServerFailed(Exception):
    """Raised if a server ended or did not become healthy. The message ends with the last lines of its log."""

    def __init__(self, name: str, reason: str, log: Path | None) -> None:
        self.name = name
        told = f"{name} {reason}."
        if log is not None:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
            told += f" Its log, {log}, ends:\n" + "\n".join(f"  {line}" for line in lines)
        super().__init__(told)


class Stopped(Exception):
    """Raised after Ctrl-C, SIGTERM or SIGHUP."""


class Supervisor:
    """Processes of one run. `say` prints a line for the user."""

    def __init__(self, run_id: str, logs: Path, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._run_id, self._logs, self._environment, self._say = run_id, logs, environment, say
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)

    def _interrupt(self) -> None:
        if self._is_stopping or self._over.done():
            # A second Ctrl-C does not wait.
            end_processes(self._run_id, grace_seconds=0)
        self._end(Stopped())

    def _end(self, reason: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(reason)

    async def until(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of the work. Raise ServerFailed if a server ends before, or Stopped."""
        task = asyncio.create_task(work)
        either: list[asyncio.Future[Any]] = [task, self._over]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            self._over.result()
        return task.result()

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name.replace('/', '_')}.log"

    async def _start(self, name: str, command: list[str], folder: Path, more: Mapping[str, str]) -> Any:
        with self.log_of(name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env={**self._environment, "PYTHONUNBUFFERED": "1", **more},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal reaches this process alone, which stops the others in order.
                start_new_session=True,
            )

    async def run(self, name: str, command: list[str], folder: Path) -> None:
        """Run a command to its end. Raise ServerFailed if it fails."""
        try:
            process = await self._start(name, command, folder, {})
        except FileNotFoundError:
            raise ServerFailed(name, f"needs {command[0]}, which is not installed", None) from None
        if await process.wait():
            raise ServerFailed(name, f"cannot be installed: {' '.join(command)} failed", self.log_of(name))

    async def start(self, name: str, command: list[str], folder: Path, more: Mapping[str, str]) -> None:
        """Start a server. Its end is the end of the run."""
        process = self._processes[name] = await self._start(name, command, folder, more)
        self._tasks.append(asyncio.create_task(self._await_end(name, process)))

    async def _await_end(self, name: str, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._is_stopping:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self._end(ServerFailed(name, f"(pid {process.pid}) {how}", self.log_of(name)))

    async def wait_until_healthy(self, urls: Mapping[str, str], *, seconds: float) -> None:
        """Wait for all servers, given by name. Raise ServerFailed for the first one that is late; 0 waits forever."""
        began, told, waiting = time.monotonic(), time.monotonic(), dict(urls)
        while waiting := await find_unhealthy({name: urls[name] for name in waiting}):
            now = time.monotonic()
            if seconds and now - began > seconds:
                name, problem = next(iter(waiting.items()))
                log = self.log_of(name) if name in self._processes else None
                raise ServerFailed(name, f"does not answer at {urls[name]} after {seconds:g} s: {problem}", log)
            if now - told > _TELL_SECONDS:
                told = now
                self._say(f"Waiting for {', '.join(waiting)}")
            await asyncio.sleep(_POLL_SECONDS)

    async def watch(self, urls: Mapping[str, str]) -> None:
        """Report servers that stop answering, or answer again, until the run ends."""
        silent: set[str] = set()
        before: dict[str, str] = {}
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now = await find_unhealthy(urls)
            # Two failures in a row: a busy process may answer late once.
            for name in sorted(now.keys() & before.keys() - silent):
                self._say(f"{name} does not answer at {urls[name]}: {now[name]}")
                silent.add(name)
            for name in sorted(silent - now.keys()):
                self._say(f"{name} answers again at {urls[name]}")
                silent.remove(name)
            before = now

    async def stop(self, *first: str, seconds: float) -> list[int]:
        """Stop the servers named `first`, then all others. Return the processes that are left."""
        self._is_stopping = True
        if not self._over.cancel():
            # Read, so that asyncio does not log it.
            self._over.exception()
        for name in first:
            if process := self._processes.get(name):
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        left = await asyncio.to_thread(end_processes, self._run_id, grace_seconds=seconds)
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.gather(*self._tasks)
        return left


async def find_unhealthy(urls: Mapping[str, str]) -> dict[str, str]:
    """Return the problem of each server that gives no response, or one with status 500 and above."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROBE_SECONDS)) as session:
        problems = await asyncio.gather(*(_probe(session, url) for url in urls.values()))
    return {name: problem for name, problem in zip(urls, problems, strict=True) if problem}


async def _probe(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url, allow_redirects=False) as reply:
            return f"status {reply.status}" if reply.status >= 500 else ""
    except (aiohttp.ClientError, TimeoutError) as problem:
        return str(problem) or type(problem).__name__
