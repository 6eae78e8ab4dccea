"""Worker processes in the actors of a Ray cluster. Ray imports this module on every node, so it needs no settings."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apps.gym.redaction.shortening import cut_clean

RUNTIME = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "false"}}
"""By default, Ray kills the processes of an ended actor with SIGKILL. Workers need time to drain."""


class WorkerActor:
    """An actor that runs one `manage.py rolloutworker`. If the actor ends, its worker drains."""

    def __init__(self, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "manage.py", "rolloutworker", *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C for Ray's processes does not reach it.
        )
        # The pipe closes when this process ends, even by SIGKILL. Not PR_SET_PDEATHSIG: it can send a signal for each
        # thread of Ray, and a second SIGTERM ends a worker at once.
        self._guard = subprocess.Popen(  # noqa: S603 - our own command
            ["/bin/sh", "-c", "read line; kill -TERM $0", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def look(self) -> tuple[str, int, int | None]:
        """Return host and pid of the worker, and its exit status once it has ended."""
        status = self._process.poll()
        if status is not None:
            self._guard.kill()  # Its pid may soon belong to another process.
        return socket.gethostname(), self._process.pid, status

    def drain(self) -> None:
        """Send SIGTERM: the worker drains within GYMWEB_WORKER_GRACE_SECONDS."""
        self._process.terminate()


@dataclass(eq=False)
class Member:
    """An actor of the fleet and its last answer. Without a pid, Ray has not placed it yet."""

    actor: Any
    answer: Any
    host: str = ""
    pid: int = 0
    is_draining: bool = False


class RayFleet:
    """The actors of one `manage.py ray_workers`. `ray` is the connected module; `start` creates an actor."""

    def __init__(self, ray: Any, *, start: Callable[[], Any], write: Callable[[str], None]) -> None:
        self._ray = ray
        self._start = start
        self._write = write
        self.members: list[Member] = []

    @property
    def active(self) -> list[Member]:
        return [member for member in self.members if not member.is_draining]

    def grow(self, count: int) -> None:
        for _ in range(count):
            actor = self._start()
            self.members.append(Member(actor, actor.look.remote()))

    def look(self) -> None:
        """Read the answers of the actors, without waiting for any, and drop actors that have ended or are lost."""
        for member in list(self.members):
            if not self._ray.wait([member.answer], timeout=0)[0]:
                continue  # Ray is placing it, or its node does not respond.
            try:
                member.host, member.pid, status = self._ray.get(member.answer)
            except self._ray.exceptions.ActorUnavailableError:
                status = None
            except self._ray.exceptions.RayActorError as lost:
                self._write(f"Lost a worker: {cut_clean(' '.join(str(lost).split()), 500)}")
                self.members.remove(member)
                continue
            if status is None:
                member.answer = member.actor.look.remote()
            else:
                self._write(f"Worker {member.host}:{member.pid} ended with status {status}")
                self.remove(member)

    def remove(self, member: Member) -> None:
        self._ray.kill(member.actor)
        self.members.remove(member)

    def drain(self) -> None:
        """Send SIGTERM to all workers, and cancel the actors that Ray has not placed."""
        for member in list(self.members):
            if not member.pid:
                self.remove(member)
            else:
                member.is_draining = True
                member.actor.drain.remote()
