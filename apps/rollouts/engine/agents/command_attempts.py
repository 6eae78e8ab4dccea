"""Attempts of command agents: the worker runs a command for each claimed rollout and captures its model calls.

See apps/gym/boxes for the isolated working folder, and docs/use/command_agents.md.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from django.conf import settings

from apps.agents.agent_changes import hidden_folders
from apps.gym.boxes.box_folders import BoxFolders
from apps.gym.boxes.bubblewrap_box import BubblewrapBox, box_owner
from apps.gym.boxes.command_run import CommandRun
from apps.gym.boxes.protocol import BoxFailed, BoxLimits
from apps.gym.calls.time_limits import stopped_clocks
from apps.gym.capture.capture_server import CaptureServer
from apps.gym.capture.captured_attempt import CapturedAttempt, WaitUntilStored
from apps.gym.capture.captured_commands import Command
from apps.gym.errors import AgentFailed
from apps.gym.sandbox.choosing import find_python, the_sandbox
from apps.gym.sandbox.protocol import SandboxMissing
from apps.gym.traces.events import TraceUnion
from apps.gym.traces.items import TaskRow
from apps.rollouts.engine.agents.hosted_attempts import HostedAttempt
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.running import Setting

logger = logging.getLogger(__name__)

_SOCKET = "capture.sock"


class CommandAttempts:
    """The running command agents of a worker: their capture server and their folders, made on first use."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(settings.AGENT_PROCESSES or 4 * (os.cpu_count() or 1))
        self._server: CaptureServer | None = None
        self._folders: BoxFolders | None = None
        self._opening = asyncio.Lock()
        self._socket = ""

    def prepare(self, claim: Claim, row: TaskRow, setting: Setting, stored: WaitUntilStored) -> "CommandAttempt":
        """Return the attempt of a claimed rollout. It begins when its driver runs."""
        captured = CapturedAttempt(
            row=row,
            server=setting.server,
            policy=setting.policy,
            harness=setting.harness,
            seed=claim.seed,
            elapsed=lambda: 0.0,
            name=str(claim.rollout_id),
            stored=stored,
        )
        return CommandAttempt(self, claim, setting, captured)

    async def open(self) -> CaptureServer:
        """Return the capture server. Raises OSError."""
        async with self._opening:
            if self._server is None:
                self._folders = await asyncio.to_thread(BoxFolders, box_owner())
                folder = self._folders.make()
                server = CaptureServer()
                await _listen(server, folder)
                self._socket = str(folder / _SOCKET)
                self._folders.give(folder / _SOCKET)
                self._server = server
            return self._server

    def make_box(self, setting: Setting) -> BubblewrapBox:
        """Return a box for one attempt. Raises SandboxMissing."""
        assert self._folders is not None
        assert setting.command is not None
        return BubblewrapBox(
            folders=self._folders,
            socket=self._socket,
            python=find_python(the_sandbox().choice),
            mounts=setting.command.mounts,
            hidden=hidden_folders(),
            limits=BoxLimits(memory=settings.AGENT_MEMORY_MB * 1024**2, files=settings.AGENT_FILES_MB * 1024**2),
        )

    def forget(self, attempt: CapturedAttempt) -> None:
        if self._server is not None:
            self._server.forget(attempt)

    async def close(self) -> None:
        server, folders, self._server, self._folders = self._server, self._folders, None, None
        if server is not None:
            await server.close()
        if folders is not None:
            await asyncio.to_thread(folders.close)


async def _listen(server: CaptureServer, folder: Path) -> None:
    # The kernel accepts only about 100 characters as the path of a socket.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        await server.start_unix(f"/proc/self/fd/{descriptor}/{_SOCKET}")
    finally:
        os.close(descriptor)


class CommandAttempt(HostedAttempt):
    """Runs the command of an agent in a box."""

    def __init__(self, attempts: CommandAttempts, claim: Claim, setting: Setting, captured: CapturedAttempt) -> None:
        super().__init__(captured)
        self._attempts, self._claim, self._setting = attempts, claim, setting
        self._box: BubblewrapBox | None = None

    async def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order; see AttemptDriver."""
        with stopped_clocks():
            await self._attempts.turns.acquire()
        try:
            async with aclosing(super().events()) as events:
                async for event in events:
                    yield event
        finally:
            self._attempts.turns.release()

    async def close(self) -> None:
        """Refuse further calls, end the command and remove its folder. May be called twice."""
        self._attempts.forget(self._captured)
        await super().close()
        if self._box is not None:
            # Its own task, because this one may be cancelled meanwhile.
            await asyncio.shield(asyncio.ensure_future(self._box.stop()))

    async def _execute(self) -> Command:
        setting, captured = self._setting, self._captured
        assert setting.command is not None
        try:
            server = await self._attempts.open()
            self._box = self._attempts.make_box(setting)
            secret = server.open(captured, self._claim.lease)
            run = CommandRun(self._box, setting.command, secret=secret, model=setting.model_name or "policy")
            return await run.finish(captured)
        except (AgentFailed, BoxFailed, SandboxMissing, OSError) as problem:
            return Command(command="fail", message=str(problem))
        except Exception as bug:
            logger.exception("the command of rollout %s failed unexpectedly", self._claim.rollout_id)
            return Command(command="fail", message=f"{type(bug).__name__}: {bug}")
